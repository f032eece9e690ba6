// SPDX-License-Identifier: Apache-2.0
#include "providers/cuda/core/device.h"
#include "tests/cuda/emulation_test/planted_mistakes.h"

namespace onnx_fp8::planted {
namespace {

template <bool kBefore, bool kAfter>
__global__ void RowSumsKernel(const float* x, int rows, float* sums) {
  __shared__ float part[128];
  for (int row = 0; row < rows; ++row) {
    part[threadIdx.x] = x[row * 128 + threadIdx.x];
    if (kBefore) __syncthreads();
    for (unsigned half = 64; half > 0; half /= 2) {
      if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
      __syncthreads();
    }
    if (threadIdx.x == 64) sums[row] = part[0];
    if (kAfter) __syncthreads();
  }
}

__global__ void NoGuardKernel(float* x) {
  x[blockIdx.x * blockDim.x + threadIdx.x] = 1;
}

__global__ void ReadKernel(const float* x, int at, float* y) { *y = x[at]; }

__global__ void UnalignedVectorKernel(const float* x, float* y) {
  float4 v = *reinterpret_cast<const float4*>(x + 1);
  y[threadIdx.x] = v.x + v.y + v.z + v.w;
}

__global__ void HalfWarpKernel(float* x) {
  float v = x[threadIdx.x];
  if (threadIdx.x < 16) v += __shfl_xor_sync(0xFFFFFFFFu, v, 1);
  x[threadIdx.x] = v;
}

__global__ void PastDynamicSharedKernel(float* x, int n) {
  float* values = DynamicShared<float>();
  values[threadIdx.x + n] = 1;
  x[threadIdx.x] = values[threadIdx.x];
}

__global__ void PastSharedRowKernel(float* x, int n) {
  __shared__ float values[2][32];
  values[0][threadIdx.x] = values[1][threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = values[0][threadIdx.x + n];
}

__global__ void UnwrittenSharedKernel(float* x) {
  __shared__ float values[64];
  if (threadIdx.x < 32) values[threadIdx.x] = 1;
  __syncthreads();
  x[threadIdx.x] = values[threadIdx.x];
}

template <bool kWaits>
__global__ void AsyncCopyKernel(const float* x, float* y) {
  __shared__ float4 part[32];
  __pipeline_memcpy_async(&part[threadIdx.x], x + threadIdx.x * 4, 16);
  __pipeline_commit();
  if (kWaits) __pipeline_wait_prior(0);
  __syncthreads();
  y[threadIdx.x] = part[31 - threadIdx.x].x;
}

__global__ void ShiftKernel(float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float next = i + 1 < n ? x[i + 1] : 0;
  __syncthreads();
  if (i < n) x[i] = next;
}

__global__ void AddKernel(float* x, int n, float value) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] += value;
}

}  // namespace

void RowSums(bool before, bool after, const float* x, int rows, float* sums,
             cudaStream_t stream) {
  auto kernel = !before  ? RowSumsKernel<false, true>
                : !after ? RowSumsKernel<true, false>
                         : RowSumsKernel<true, true>;
  Launch(kernel, 1, 128, 0, stream, x, rows, sums);
}

void NoGuard(float* x, int blocks, int threads) {
  Launch(NoGuardKernel, blocks, threads, 0, nullptr, x);
}

void Read(const float* x, int at, float* y) {
  Launch(ReadKernel, 1, 1, 0, nullptr, x, at, y);
}

void UnalignedVector(const float* x, float* y) {
  Launch(UnalignedVectorKernel, 1, 32, 0, nullptr, x, y);
}

void HalfWarp(float* x) { Launch(HalfWarpKernel, 1, 32, 0, nullptr, x); }

void PastDynamicShared(float* x, int n) {
  Launch(PastDynamicSharedKernel, 1, 64, 64 * sizeof(float), nullptr, x, n);
}

void PastSharedRow(float* x, int n) {
  Launch(PastSharedRowKernel, 1, 32, 0, nullptr, x, n);
}

void UnwrittenShared(float* x) {
  Launch(UnwrittenSharedKernel, 1, 64, 0, nullptr, x);
}

void AsyncCopy(bool waits, const float* x, float* y) {
  auto kernel = waits ? AsyncCopyKernel<true> : AsyncCopyKernel<false>;
  Launch(kernel, 1, 32, 0, nullptr, x, y);
}

void Shift(float* x, int n) {
  Launch(ShiftKernel, (n + 63) / 64, 64, 0, nullptr, x, n);
}

void Add(float* x, int n, float value, cudaStream_t stream) {
  Launch(AddKernel, (n + 63) / 64, 64, 0, stream, x, n, value);
}

void AddNowhere(float* x) { Launch(AddKernel, 0, 64, 0, nullptr, x, 0, 1.0f); }

}  // namespace onnx_fp8::planted
