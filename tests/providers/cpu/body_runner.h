// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace onnx_fp8 {

// Runs the body of one of our nodes on the CPU kernels of ONNX's ops.
std::vector<Tensor> RunBody(const std::string& op,
                            const std::vector<Tensor>& inputs,
                            const Attributes& attributes, size_t outputs);

// Expects that the body and our kernel give the same bits.
void ExpectBodyAndKernelAgree(const std::string& op,
                              const std::vector<Tensor>& inputs,
                              const Attributes& attributes, size_t outputs);

struct OperandFacts {
  DType dtype;
  std::optional<Shape> shape;
};

// The facts about a node's outputs that inference alone finds, as
// "dtype[shape]"; "?" if the shape is unknown.
std::vector<std::string> Inferred(const std::string& op,
                                  const std::vector<OperandFacts>& inputs,
                                  const Attributes& attributes, size_t outputs);

}  // namespace onnx_fp8
