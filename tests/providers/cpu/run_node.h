// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "onnx_fp8/tensor.h"

namespace onnx_fp8 {

// The results of the CPU kernel of one node that is not part of a model; an
// undefined input tensor stands for an omitted operand. The node is called "n".
// Result shapes are not known beforehand. Errors: those of the kernel.
std::vector<Tensor> RunNode(const std::string& op,
                            const std::vector<Tensor>& inputs,
                            Attributes attributes = {}, size_t outputs = 1,
                            const std::string& domain = "");

// The one result of a node.
inline Tensor RunNode1(const std::string& op, const std::vector<Tensor>& inputs,
                       Attributes attributes = {},
                       const std::string& domain = "") {
  return RunNode(op, inputs, std::move(attributes), 1, domain)[0];
}

// The message of the Error in which the node must end; "" if it does not.
std::string ErrorOf(const std::string& op, const std::vector<Tensor>& inputs,
                    Attributes attributes = {}, size_t outputs = 1,
                    const std::string& domain = "");

// Standard normal numbers (Box-Muller), the same for the same seed.
Tensor RandomNormal(Shape shape, uint64_t seed);

// Largest |x - y| over all elements. REQUIRES: one shape, numeric.
double LargestDifference(const Tensor& x, const Tensor& y);

// Float tensor of 0, 1, 2, … .
Tensor Count(const Shape& shape);

Tensor Floats(const Shape& shape, const std::vector<float>& values);

// All elements as double.
std::vector<double> Doubles(const Tensor& x);

}  // namespace onnx_fp8
