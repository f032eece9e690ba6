// SPDX-License-Identifier: Apache-2.0
//
// Products of 8-bit floats with sums as in Hopper's tensor cores, so that a CPU
// shows what a GPU will do to a loss. Slow.
#pragma once

#include "providers/cpu/gemm/gemm.h"

namespace onnx_fp8 {

// As Gemm, for two 8-bit operands and k > 0, with sums as these sources
// describe them: DeepSeek-V3 (arXiv 2412.19437, 3.3.2 and 3.5.2) and
// SageAttention2 (arXiv 2411.10958, 3.3).
//
// An instruction adds 32 products to a sum. All 33 numbers are cut, towards
// zero, to multiples of 2^(E - 13), where 2^E is the power of two of the
// largest of them; 14 bits remain. They are added exactly, and the sum is cut
// to 14 significant bits. After 128 products the sum is promoted: it is added,
// in fp32, to the result, and the next sum begins at 0. With `fast_accum` there
// is one sum for all of k. Scales that vary along k are applied when a sum is
// promoted. A sum is promoted at the latest where the scales change (as in
// DeepGEMM).
//
// The sources do not say how E is found before products are normalized, so
// results may differ by one bit from the hardware.
void HopperGemm(const GemmProblem& problem);

}  // namespace onnx_fp8
