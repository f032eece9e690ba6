// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace onnx_fp8 {

enum class Isa { kPortable, kAvx2, kAvx512 };

// The best instruction set that both this program and this machine have;
// decided once. kAvx2 stands for AVX2 + FMA + F16C, kAvx512 for those and
// AVX-512 F, BW, VL, DQ, VBMI.
Isa ActiveIsa();

// True if this machine can run code for `isa`.
bool HasIsa(Isa isa);

// "avx512", "avx2" or "portable", for the user.
const char* CpuIsa();

}  // namespace onnx_fp8
