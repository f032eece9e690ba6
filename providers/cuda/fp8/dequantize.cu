// SPDX-License-Identifier: Apache-2.0
#include "providers/cuda/core/elementwise.h"
#include "providers/cuda/core/encode.h"
#include "providers/cuda/fp8/dequantize.h"

namespace onnx_fp8::cuda {
namespace {

struct Decoding {
  const uint8_t* codes;
  const void* scales;
  bool is_e4m3, scales_are_e8m0;
  int64_t n, columns, block_rows, block_columns, across;
  FloatsOut to;
};

// A power of two; the code 0xFF is NaN, 0 is 2^-127.
__device__ float DecodeE8M0(uint8_t code) {
  if (code == 0) return 0x1p-127f;
  return __uint_as_float(code == 255 ? 0x7FC00000u : uint32_t{code} << 23);
}

__global__ void __launch_bounds__(kThreads) DequantizeKernel(Decoding d) {
  int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= d.n) return;
  int64_t block =
      i / d.columns / d.block_rows * d.across + i % d.columns / d.block_columns;
  float scale = d.scales_are_e8m0
                    ? DecodeE8M0(static_cast<const uint8_t*>(d.scales)[block])
                    : static_cast<const float*>(d.scales)[block];
  float x = d.is_e4m3 ? Decode<true>(d.codes[i]) : Decode<false>(d.codes[i]);
  Store(d.to, i, x * scale);
}

}  // namespace

void Dequantize(const Queue& queue, const BlockGrid& grid, const void* codes,
                DType dtype, const void* scales, DType scale_dtype, void* to,
                DType to_dtype) {
  int64_t n = grid.rows * grid.columns;
  if (n == 0) return;
  Storage storage =
      to_dtype == DType::kBFloat16 ? Storage::kBFloat16 : Storage::kFloat;
  Launch(DequantizeKernel, static_cast<unsigned>(DivideUp(n, kThreads)),
         kThreads, 0, queue.stream(),
         Decoding{static_cast<const uint8_t*>(codes),
                  scales,
                  dtype == DType::kE4M3,
                  scale_dtype == DType::kE8M0,
                  n,
                  grid.columns,
                  grid.block_rows,
                  grid.block_columns,
                  grid.across,
                  {to, storage}});
}

}  // namespace onnx_fp8::cuda
