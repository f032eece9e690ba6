// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "graph/graph.h"

namespace onnx_fp8 {

// PyTorch's name for a parameter of a file.
struct ParameterName {
  std::string fqn;
  // The file holds the transpose of PyTorch's matrix.
  bool transposed = false;
  // For people, if the file has lost the name: how it was recovered, or that it
  // was not.
  std::string remark;
};

// Whether an exporter made the name up ("val_83", "onnx::MatMul_512") for a
// tensor that one of its optimizations computed, or for a Constant node
// ("/fc/Constant_1_output_0").
bool IsMadeUpName(std::string_view name);

// By initializer name.
using ParameterNames = std::map<std::string, ParameterName>;

// Names of all parameters, trained or frozen. Exporters keep PyTorch's fully
// qualified name, unless an optimization folded the tensor into a new one
// ("val_83", "onnx::MatMul_512"). Then the module path of the node that reads
// it tells the name: the right operand of MatMul at blocks.0.fc is
// blocks.0.fc.weight, held transposed. If two parameters would get one name,
// they keep the file's. REQUIRES: roles set.
ParameterNames NameParameters(const Graph& graph);

}  // namespace onnx_fp8
