// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace onnx_fp8 {

// Runs one node of ours by its body, on the CPU kernels of ONNX's ops.
std::vector<Tensor> RunBody(const std::string& op,
                            const std::vector<Tensor>& inputs,
                            const Attributes& attributes, size_t outputs);

// Expects the same bits of the body and of our kernel.
void ExpectBodyAndKernelAgree(const std::string& op,
                              const std::vector<Tensor>& inputs,
                              const Attributes& attributes, size_t outputs);

struct Operand {
  DType dtype;
  std::optional<Shape> shape;
};

// What inference alone knows of a node's outputs, as "dtype[shape]"; "?" where
// the shape is unknown.
std::vector<std::string> Inferred(const std::string& op,
                                  const std::vector<Operand>& inputs,
                                  const Attributes& attributes, size_t outputs);

}  // namespace onnx_fp8
