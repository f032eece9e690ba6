// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cublasLt.h>

#include "tests/cuda/emulation/cublaslt_product.h"

namespace onnx_fp8::emulation {

// The first of ProductAlgorithms(), at most `wanted`, for operands that are as
// aligned as the preference says. They are good for no other problem.
cublasStatus_t FindAlgorithms(const LtProblem& problem,
                              const LtPreference& preference, int wanted,
                              cublasLtMatmulHeuristicResult_t results[],
                              int& count);

// Whether the algorithm is one of the problem. It may still fail for operands
// that are less aligned than it needs.
cublasStatus_t CheckAlgorithm(const LtProblem& problem,
                              const cublasLtMatmulAlgo_t& algorithm,
                              cublasLtMatmulHeuristicResult_t& result);

// Puts the product into the stream. `algorithm` may be null. Refuses a
// workspace that another stream uses.
cublasStatus_t EnqueueProduct(const LtProblem& problem, LtOperands operands,
                              const cublasLtMatmulAlgo_t* algorithm,
                              cudaStream_t stream);

}  // namespace onnx_fp8::emulation
