// SPDX-License-Identifier: Apache-2.0
//
// Numbers of the host, in the provider's memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "providers/kernel.h"

namespace onnx_fp8::cuda {

// Writes bytes of the host to `y`, which is aligned to 64 bytes. They travel as
// arguments of kernels: recorded work keeps them, and `from` need not outlive
// the call. Meant for small values.
void WriteBytes(const KernelContext& ctx, const void* from, size_t bytes,
                void* y);

// Fills `bytes` bytes of y, which is aligned to 64 bytes, with a value of
// `width` bytes. REQUIRES: the width is 1, 2, 4 or 8.
void FillWith(const KernelContext& ctx, const void* value, size_t width,
              int64_t bytes, void* y);

// y[i] = start + i · delta of n numbers; integers are computed modulo 2^64. T
// is float, double, int16_t, int32_t or int64_t.
template <typename T>
void FillRange(const KernelContext& ctx, T start, T delta, int64_t n, T* y);

// Sets n elements of `width` bytes, `step` elements apart, to a value.
// REQUIRES: as FillWith's.
void FillEvery(const KernelContext& ctx, const void* value, size_t width,
               int64_t first, int64_t n, int64_t step, void* y);

}  // namespace onnx_fp8::cuda
