// SPDX-License-Identifier: Apache-2.0
//
// ONNX's own node test data: one small model per case with inputs and expected
// results (onnx/backend/test/data/node of the Python package).
#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace onnx_fp8 {

struct OnnxCase {
  std::string name;    // "test_add_bcast"
  std::string folder;  // with model.onnx and test_data_set_*
};

// GoogleTest shows a parameter in this way.
inline void PrintTo(const OnnxCase& node_case, std::ostream* out) {
  *out << node_case.name;
}

struct OnnxCases {
  std::vector<OnnxCase> runnable;
  // Names of the cases that are left out, by reason.
  std::vector<std::string> without_kernel;  // an op that has no CPU kernel
  std::vector<std::string> without_type;    // strings, sequences, 4-bit types
  std::vector<std::string> excluded;        // Excluded() says why
  std::vector<std::string> unreadable;      // "name: message"
};

// Sorts all cases of the folder that CMake found. Errors: no such folder.
OnnxCases FindNodeCases();

// The reason why a case is never run; "" if it is run.
std::string Excluded(const std::string& name);

// Runs all data sets of a case node by node on the CPU kernels. Returns the
// difference from the expected results, or "".
std::string RunNodeCase(const OnnxCase& node_case);

}  // namespace onnx_fp8
