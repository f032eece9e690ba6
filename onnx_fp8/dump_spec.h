// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace onnx_fp8 {

// Which steps write tensors of their linear layers' products, of which layers,
// and which tensors.
struct DumpSpec {
  std::vector<std::string> layers;  // globs over names; empty: none
  std::set<int64_t> steps;
  std::set<std::string> operands;  // of kDumpedOperands

  bool Dumps(int64_t step) const { return steps.contains(step); }
};

inline constexpr const char* kDumpedOperands[] = {"input", "weight",
                                                  "grad_output", "output"};

// `what` empty: all of kDumpedOperands. Errors: OptionError about a step that
// is no whole number from 1, about a word that is none of kDumpedOperands, and
// about layers without steps or steps or words without layers.
DumpSpec ParseDump(const std::vector<std::string>& layers,
                   const std::vector<std::string>& steps,
                   const std::vector<std::string>& what);

}  // namespace onnx_fp8
