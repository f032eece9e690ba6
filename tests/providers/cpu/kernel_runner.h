// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace onnx_fp8 {

// Runs the CPU kernel of one node that is not part of a model. Undefined inputs
// are omitted operands. Errors: those of the kernel.
std::vector<Tensor> RunKernel(const std::string& op,
                              const std::vector<Tensor>& inputs,
                              Attributes attributes = {}, size_t outputs = 1,
                              const std::string& domain = "");

// Standard normal numbers (Box-Muller), the same for the same seed.
Tensor RandomNormal(Shape shape, uint64_t seed);

// Largest |x - y| over all elements. REQUIRES: one shape, numeric.
double LargestDifference(const Tensor& x, const Tensor& y);

}  // namespace onnx_fp8
