// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "graph/graph.h"
#include "onnx_fp8/tensor.h"

namespace onnx_fp8 {

// The results of one node on the CPU kernels; an undefined input tensor stands
// for an omitted operand. The node is called "n". Result shapes are not known
// beforehand.
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

// Float tensor of 0, 1, 2, … .
Tensor Count(const Shape& shape);

Tensor Floats(const Shape& shape, const std::vector<float>& values);

// All elements as double.
std::vector<double> Doubles(const Tensor& x);

}  // namespace onnx_fp8
