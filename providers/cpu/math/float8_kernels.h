// SPDX-License-Identifier: Apache-2.0
//
// Loops over arrays of small floats, one set per instruction set. All sets give
// the bits of onnx_fp8/float8.h.
#pragma once

#include <cstdint>

#include "onnx_fp8/dtype.h"
#include "providers/amax.h"
#include "providers/cpu/math/isa.h"

namespace onnx_fp8 {

struct Float8Kernels {
  void (*decode_e4m3)(const uint8_t* q, float* x, int64_t n);
  void (*decode_e5m2)(const uint8_t* q, float* x, int64_t n);
  // To bfloat16, exactly.
  void (*widen_e4m3)(const uint8_t* q, uint16_t* x, int64_t n);
  void (*widen_e5m2)(const uint8_t* q, uint16_t* x, int64_t n);
  // q = saturating cast of x · factor (product rounded to fp32).
  void (*encode_e4m3)(const float* x, float factor, uint8_t* q, int64_t n);
  void (*encode_e5m2)(const float* x, float factor, uint8_t* q, int64_t n);
  Amax (*amax)(const float* x, int64_t n);
};

// REQUIRES: HasIsa(isa).
const Float8Kernels& KernelsFor(Isa isa);

// The encoder of the active instruction set. Errors: no 8-bit float.
decltype(Float8Kernels::encode_e4m3) EncoderOf(DType dtype);

extern const Float8Kernels kFloat8Portable;  // float8_kernels.cc
extern const Float8Kernels kFloat8Avx2;      // float8_kernels_avx2.cc
extern const Float8Kernels kFloat8Avx512;    // float8_kernels_avx512.cc

// n floats in memory: kFloat, or kept as kBFloat16 or kFloat16.
struct StoredFloats {
  DType dtype;
  const void* data;
  int64_t n;
};

// On all threads, with the active instruction set; inside of ParallelFor on one
// thread. dtype: kE4M3, kE5M2.
void DecodeTo(DType dtype, const void* q, float* x, int64_t n);
void EncodeTo(DType dtype, const StoredFloats& x, float factor, void* q);
Amax AmaxOf(const StoredFloats& x);
// Both, in one pass over x.
Amax EncodeAndMeasure(DType dtype, const StoredFloats& x, float factor,
                      void* q);

}  // namespace onnx_fp8
