// SPDX-License-Identifier: Apache-2.0
//
// The parts of the matrix product that each instruction set supplies: the
// packing of operands, and the loop over a packed block.
#pragma once

#include <cstdint>

#include "providers/cpu/gemm/panels.h"

namespace onnx_fp8 {

// c (m,n) = a · b, or c + a · b with `add`, from packed panels. At the end of
// the depth (`last`) then c · scale [+ bias]. With row_scale (m) and
// column_scale (n), their rounded product is a factor first: of c at the end
// or, with scale_sum, of every a · b before it is added. With add_last, the c
// from before is added to all this; then there is one depth, and no `add`.
struct GemmBlock {
  int64_t m, n;
  int64_t depth;  // a multiple of the layouts' DepthUnit
  const void* a;
  // Bytes from one row of A to the next, and from one unit of a row to the
  // next, if A is read from memory as it is; 0: panels. A unit is a float, for
  // products of bfloat16 a pair or, for matrix tiles, DepthUnit elements; units
  // of bfloat16 lie side by side. There rows have zeros up to `depth`, and
  // memory may be read up to a whole number of `rows` of the kernels.
  int64_t a_row = 0, a_step = 0;
  const void* b;
  int64_t b_panel;  // bytes from one panel of B to the next
  float* c;
  int64_t ldc;
  bool add;
  bool last;
  bool add_last = false;
  float scale;
  const float* bias;  // of the block's columns, or null
  const float* row_scale = nullptr;
  const float* column_scale = nullptr;
  bool scale_sum = false;
  // Where the block goes at the end of the depth, rounded to bfloat16, instead
  // of c; null: c. REQUIRES: kernels with `narrows`.
  uint16_t* narrow = nullptr;
  int64_t narrow_ld = 0;
};

struct GemmKernels {
  const char* name;
  PanelLayout a_layout, b_layout;
  int64_t rows, columns;  // width of a panel of A, of B
  // Largest block: A's block then stays in the second-level cache, a panel of B
  // in the first. max_m is a multiple of `rows`. Sums of `depth` products are
  // added in order, so results depend on max_depth.
  int64_t max_m, max_depth;
  void (*block)(const GemmBlock& block);
  // The arithmetic of the loop alone, `rounds` times on registers. Writes its
  // sums, kRegisterSums floats, to `sums`; returns the number of
  // multiplications and additions.
  int64_t (*registers)(int64_t rounds, float* sums);
  bool narrows = false;  // GemmBlock::narrow is possible
};

inline constexpr int64_t kRegisterSums = 1024;
inline constexpr int64_t kMaxDepth = 512;  // no max_depth is larger

extern const GemmKernels kGemmPortable;    // kernels_portable.cc
extern const GemmKernels kGemmAvx2;        // kernels_avx2.cc
extern const GemmKernels kGemmAvx512;      // kernels_avx512.cc
extern const GemmKernels kGemmAvx512Bf16;  // kernels_avx512bf16.cc
extern const GemmKernels kGemmAmx;         // kernels_amx.cc

// The kernels for a product of floats, and for a product whose operands are
// both exact in bfloat16 (8-bit floats, bfloat16). They belong to the active
// instruction set. If none was forced, kernels with bfloat16 products are taken
// only if a measurement of about a millisecond, made once, finds them faster.
const GemmKernels& FloatKernels();
const GemmKernels& Bf16Kernels();

}  // namespace onnx_fp8
