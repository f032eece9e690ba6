// SPDX-License-Identifier: Apache-2.0
#include "providers/cpu/math/float8_kernels.h"
#include "providers/cpu/math/float8_kernels.inc"

namespace onnx_fp8 {

extern const Float8Kernels kFloat8Avx2 = kLoops;

}  // namespace onnx_fp8
