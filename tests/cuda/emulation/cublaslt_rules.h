// SPDX-License-Identifier: Apache-2.0
//
// What cuBLASLt 13.0 documents that it does not do on Hopper. Where the
// documents leave room, the rules take the stricter reading.
#pragma once

#include "tests/cuda/emulation/cublaslt_problem.h"

namespace onnx_fp8::emulation {

// Why a product is refused; null if it is not.
struct LtVerdict {
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
  const char* why = nullptr;
};

LtVerdict LtInvalid(const char* why);
LtVerdict LtUnsupported(const char* why);

LtVerdict CheckProblem(const LtProblem& problem);

}  // namespace onnx_fp8::emulation
