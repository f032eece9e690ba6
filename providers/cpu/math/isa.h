// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>

namespace onnx_fp8 {

// Each set includes all sets before it.
//   kAvx2        AVX2, FMA, F16C
//   kAvx512      AVX-512 F, BW, VL, DQ, VBMI
//   kAvx512Bf16  AVX-512 BF16
//   kAmx         AMX tiles and their bfloat16 products
enum class Isa { kPortable, kAvx2, kAvx512, kAvx512Bf16, kAmx };

// Whether this program has code for the sets after kPortable. They are
// x86-64's; a build for another CPU leaves their files out (CMakeLists.txt).
#if defined(__x86_64__)
inline constexpr bool kHasX86Isas = true;
#else
inline constexpr bool kHasX86Isas = false;
#endif

// The instruction set to use: the best one of this machine, or the forced one.
Isa ActiveIsa();

// True if this machine can run code for `isa`.
bool HasIsa(Isa isa);

// All instruction sets that this program knows, in order.
std::span<const Isa> AllIsas();

// "portable", "avx2", "avx512", "avx512bf16", "amx".
const char* Name(Isa isa);

// From now on ActiveIsa() is the set of this name; "auto" is the best one. For
// tests and measurements, while nothing is computed. Errors: an unknown name,
// or a set that this machine can't run; the message lists the sets that it can
// run.
void ForceIsa(std::string_view name);
bool IsaIsForced();

}  // namespace onnx_fp8
