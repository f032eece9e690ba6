// SPDX-License-Identifier: Apache-2.0
#include "providers/cuda/core/device.h"
#include "tests/cuda/emulation_test/device_arrays.h"
#include "tests/cuda/emulation_test/device_kernels.h"

namespace onnx_fp8::emulation_test {
namespace {

constexpr unsigned kAll = 0xFFFFFFFFu;

__global__ void OrderKernel(unsigned* counter, unsigned* ids) {
  ids[atomicAdd(counter, 1u)] = blockIdx.x * blockDim.x + threadIdx.x;
}

__global__ void CollectivesKernel(int* results) {
  int lane = static_cast<int>(threadIdx.x);
  auto bits = static_cast<unsigned>(lane);
  int r[kCollectives] = {
      __shfl_sync(kAll, lane, 5),
      __shfl_sync(kAll, lane, 3, 8),
      __shfl_xor_sync(kAll, lane, 1),
      __shfl_up_sync(kAll, lane, 2),
      __shfl_down_sync(kAll, lane, 2),
      __shfl_down_sync(kAll, lane, 2, 4),
      static_cast<int>(__ballot_sync(kAll, lane % 2 == 1)),
      __any_sync(kAll, lane == 31),
      __all_sync(kAll, lane < 31),
      static_cast<int>(__reduce_add_sync(kAll, bits)),
      static_cast<int>(__reduce_min_sync(kAll, bits + 7)),
      static_cast<int>(__reduce_max_sync(kAll, bits)),
      __reduce_min_sync(kAll, lane - 20),
      __reduce_max_sync(kAll, lane - 40),
      static_cast<int>(__reduce_or_sync(kAll, bits)),
      static_cast<int>(__shfl_sync(kAll, 1e10 * lane, 3) / 1e10),
  };
  for (int i = 0; i < kCollectives; ++i)
    results[lane * kCollectives + i] = r[i];
}

__global__ void HalvesKernel(int* results) {
  unsigned lane = threadIdx.x;
  unsigned half = lane < 16 ? 0x0000FFFFu : 0xFFFF0000u;
  unsigned sum = __reduce_add_sync(half, lane);
  __syncwarp();
  results[lane] = static_cast<int>(sum);
}

__global__ void VotesKernel(int* results) {
  int i = static_cast<int>(threadIdx.x);
  int count = __syncthreads_count(i % 3 == 0);
  int some = __syncthreads_or(i == 1);
  int all = __syncthreads_and(i >= 0);
  int none = __syncthreads_count(0);
  results[i] = count * 1000 + some * 100 + all * 10 + none;
}

__global__ void AtomicsKernel(int* cells) {
  int i = static_cast<int>(threadIdx.x);
  atomicAdd(&cells[0], i);
  atomicMax(&cells[1], i);
  atomicMin(&cells[2], -i);
  atomicOr(&cells[3], 1 << i % 8);
  atomicAnd(&cells[4], ~(1 << i % 8));
  atomicSub(&cells[5], 1);
  atomicCAS(&cells[6], 0, 77);
  if (i == 0) atomicExch(&cells[7], 5);
  atomicXor(&cells[8], i);
}

__global__ void ExactKernel(float* r) {
  r[0] = __uint_as_float(__float_as_uint(1.5f) + 1);
  r[1] = __int_as_float(__float_as_int(-2.0f));
  r[2] = static_cast<float>(__double_as_longlong(2.0) >> 52);
  r[3] = static_cast<float>(__popc(0xF0F0u));
  r[4] = static_cast<float>(__clz(1));
  r[5] = static_cast<float>(__ffs(8));
  r[6] = static_cast<float>(min(3, -4));
  r[7] = static_cast<float>(max(3u, 4u));
  r[8] = min(2.0f, __int_as_float(0x7FC00000));
  r[9] = max(1.0f, 7.0f);
  r[10] = __frcp_rn(3.0f);
  r[11] = __fsqrt_rn(2.0f);
  r[12] = __fdiv_rn(1.0f, 7.0f);
  r[13] = __fmaf_rn(1.0f + 0x1p-12f, 1.0f + 0x1p-12f, -1.0f);
  r[14] = fmaf(2.0f, 3.0f, 1.0f);
  r[15] = __fadd_rn(1.0f, 2.0f) + __fmul_rn(2.0f, 4.0f);
  r[16] = static_cast<float>(__umulhi(0x80000000u, 6u));
  r[17] = static_cast<float>(max(2LL, 1LL << 40) >> 40);
  r[18] = sqrtf(2.0f);
  r[19] = __ldg(&r[14]);
}

__global__ void InexactKernel(float x, float* r) {
  r[0] = expf(x);
  r[1] = logf(x);
  r[2] = tanhf(x);
  r[3] = erff(x);
  r[4] = sinf(x);
  r[5] = cosf(x);
  r[6] = powf(x, 1.25f);
  r[7] = rsqrtf(x);
  r[8] = __expf(x);
  r[9] = __logf(x);
  r[10] = exp2f(x);
  r[11] = log1pf(x);
}

template <typename T>
__global__ void CopyKernel(const T* x, int n, T* y) {
  int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) y[i] = x[i];
}

__global__ void NeighborsKernel(int* results) {
  int* cells = DynamicShared<int>();
  unsigned i = threadIdx.x;
  cells[i] = static_cast<int>(i) * 3;
  __syncthreads();
  results[i] = cells[(i + 1) % blockDim.x];
}

__global__ void MuchSharedKernel(float* x, int n) {
  __shared__ float one[256];
  float* much = DynamicShared<float>();
  one[threadIdx.x] = 1;
  if (threadIdx.x == 0) much[n - 1] = 2;
  __syncthreads();
  if (threadIdx.x == 31) *x = one[0] + much[n - 1];
}

__global__ void WarpBarrierKernel(float* x) {
  __shared__ float cells[64];
  cells[threadIdx.x] = 1;
  __syncwarp();
  x[threadIdx.x] = cells[threadIdx.x ^ 32];
}

__device__ int Deep(int depth, int* x) {
  volatile int here[64];
  here[depth % 64] = depth;
  if (depth == 0) return *x;
  return Deep(depth - 1, x) + here[depth % 64];
}

__global__ void RecurseKernel(int depth, int* x) { *x = Deep(depth, x); }

__global__ void TrapKernel() { __trap(); }

__global__ void LoopKernel(int times, float* x) {
  float v = static_cast<float>(threadIdx.x);
  for (int i = 0; i < times; ++i) {
    __syncthreads();
    v = __shfl_xor_sync(kAll, v, 1);
  }
  x[threadIdx.x] = v;
}

}  // namespace

void OrderOfThreads(int blocks, int threads, unsigned* counter, unsigned* ids) {
  Launch(OrderKernel, blocks, threads, 0, nullptr, counter, ids);
}

void Collectives(int* results) {
  Launch(CollectivesKernel, 1, 32, 0, nullptr, results);
}

void HalvesOfAWarp(int* results) {
  Launch(HalvesKernel, 1, 32, 0, nullptr, results);
}

void Votes(int threads, int* results) {
  Launch(VotesKernel, 1, threads, 0, nullptr, results);
}

void Atomics(int threads, int* cells) {
  Launch(AtomicsKernel, 1, threads, 0, nullptr, cells);
}

void ExactNumbers(float* results) {
  Launch(ExactKernel, 1, 1, 0, nullptr, results);
}

void InexactNumbers(float x, float* results) {
  Launch(InexactKernel, 1, 1, 0, nullptr, x, results);
}

void CopyFloats(const float* x, int n, float* y) {
  Launch(CopyKernel<float>, (n + 63) / 64, 64, 0, nullptr, x, n, y);
}

void NeighborsInShared(int threads, int* results) {
  Launch(NeighborsKernel, 1, threads, threads * sizeof(int), nullptr, results);
}

void MuchShared(size_t bytes, bool granted, float* x) {
  if (granted) {
    Must(cudaFuncSetAttribute(reinterpret_cast<const void*>(MuchSharedKernel),
                              cudaFuncAttributeMaxDynamicSharedMemorySize,
                              static_cast<int>(bytes)));
  }
  Launch(MuchSharedKernel, 1, 32, bytes, nullptr, x,
         static_cast<int>(bytes / sizeof(float)));
}

cudaFuncAttributes AttributesOfMuchShared() {
  cudaFuncAttributes attributes;
  Must(cudaFuncGetAttributes(&attributes,
                             reinterpret_cast<const void*>(MuchSharedKernel)));
  return attributes;
}

int OccupancyOfMuchShared(int threads, size_t bytes) {
  int blocks = 0;
  Must(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
      &blocks, reinterpret_cast<const void*>(MuchSharedKernel), threads,
      bytes));
  return blocks;
}

void WarpBarrierOnly(float* x) {
  Launch(WarpBarrierKernel, 1, 64, 0, nullptr, x);
}

void Recurse(int depth, int* x) {
  Launch(RecurseKernel, 1, 1, 0, nullptr, depth, x);
}

void Trap() { Launch(TrapKernel, 1, 1, 0, nullptr); }

void Loop(int times, float* x) {
  Launch(LoopKernel, 1, 256, 0, nullptr, times, x);
}

}  // namespace onnx_fp8::emulation_test
