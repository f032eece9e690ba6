// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "graph/graph.h"

namespace onnx_fp8 {

// What PyTorch calls a parameter of a file.
struct ParameterName {
  std::string fqn;
  // The file holds the transpose of PyTorch's matrix.
  bool transposed = false;
  // For people, where the file has lost the name: how it was recovered, or
  // that it was not.
  std::string remark;
};

// Whether an exporter made the name up ("val_83", "onnx::MatMul_512") for a
// tensor that one of its optimisations computed, or for a Constant node
// ("/fc/Constant_1_output_0").
bool IsMadeUpName(std::string_view name);

// By initializer name.
using ParameterNames = std::map<std::string, ParameterName>;

// Names of all parameters, trained or frozen. Exporters keep PyTorch's fully
// qualified name, unless an optimisation folded the tensor into a new one
// ("val_83", "onnx::MatMul_512"); then the module path of the node that reads
// it tells: the right operand of MatMul at blocks.0.fc is blocks.0.fc.weight,
// held transposed. A name that would be given twice stays the file's.
// REQUIRES: roles set.
ParameterNames NameParameters(const Graph& graph);

}  // namespace onnx_fp8
