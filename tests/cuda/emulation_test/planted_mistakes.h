// SPDX-License-Identifier: Apache-2.0
//
// Kernels with a mistake each, behind functions of the host.
#pragma once

#include <cuda_runtime_api.h>

namespace onnx_fp8::planted {

// Sums of rows of 128 floats, by a tree in shared memory. Without the barrier
// `before`, a thread reads what others may not have written yet; without
// `after`, the next row may come before this row's sum was read.
void RowSums(bool before, bool after, const float* x, int rows, float* sums,
             cudaStream_t stream);

// x[i] = 1 for all threads, also past the end.
void NoGuard(float* x, int blocks, int threads);
// *y = x[at].
void Read(const float* x, int at, float* y);
// Reads float4 from x + 1.
void UnalignedVector(const float* x, float* y);
// Half of the lanes shuffle with all in the mask.
void HalfWarp(float* x);
// Writes past 64 floats of dynamic shared memory if n > 0.
void PastDynamicShared(float* x, int n);
// Reads past the first of two rows in shared memory if n > 0.
void PastSharedRow(float* x, int n);
// Reads 64 floats of shared memory, of which 32 were written.
void UnwrittenShared(float* x);
// y[i] = x[4 · (31 - i)], by cp.async and shared memory.
void AsyncCopy(bool waits, const float* x, float* y);
// A block overwrites what the block before it reads.
void Shift(float* x, int n);
// x[i] += value.
void Add(float* x, int n, float value, cudaStream_t stream);
// With an empty grid.
void AddNowhere(float* x);

}  // namespace onnx_fp8::planted
