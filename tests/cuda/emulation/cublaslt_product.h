// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "tests/cuda/emulation/cublaslt_problem.h"

namespace onnx_fp8::emulation {

struct LtOperands {
  const void *a = nullptr, *b = nullptr, *c = nullptr;
  void* d = nullptr;
  void* workspace = nullptr;
  size_t workspace_bytes = 0;
  // In device memory, or null: the values here.
  const float *alpha = nullptr, *beta = nullptr;
  float alpha_value = 0, beta_value = 0;
  uint64_t algorithm = 0;  // its number
};

// Computes the product in float. Numerics() and the algorithm change the order
// of its sums. Destroys the workspace. Faults where an operand is not device
// memory. REQUIRES: CheckProblem finds nothing; memory is open.
void RunProduct(const LtProblem& problem, const LtOperands& operands);

}  // namespace onnx_fp8::emulation
