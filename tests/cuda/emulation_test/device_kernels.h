// SPDX-License-Identifier: Apache-2.0
//
// Kernels that use one part of the device language each, behind functions of
// the host. All run on the default stream.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace onnx_fp8::emulation_test {

// ids[i] = the thread that came i-th to an atomic counter, which is 0 at first.
void OrderOfThreads(int blocks, int threads, unsigned* counter, unsigned* ids);

// For each of 32 lanes, 16 results of collectives; see the kernel.
inline constexpr int kCollectives = 16;
void Collectives(int* results);
// Two halves of a warp sum apart: results[lane].
void HalvesOfAWarp(int* results);
// results[thread] = votes of all `threads` for each of 3 questions.
void Votes(int threads, int* results);
// Integers that all threads change by atomics; see the kernel.
inline constexpr int kAtomics = 9;
void Atomics(int threads, int* cells);
// Floats, or the bits of numbers as floats; see the kernels.
inline constexpr int kExact = 20;
void ExactNumbers(float* results);
inline constexpr int kInexact = 12;
void InexactNumbers(float x, float* results);

// y[i] = x[i], one block for 64 of them.
void CopyFloats(const float* x, int n, float* y);
// Each thread writes to its own cell of dynamic shared memory, and reads its
// neighbor's.
void NeighborsInShared(int threads, int* results);
// Gives `bytes` of dynamic shared memory to a block. `granted`: asks first.
void MuchShared(size_t bytes, bool granted, float* x);
cudaFuncAttributes AttributesOfMuchShared();
int OccupancyOfMuchShared(int threads, size_t bytes);
// Two warps, of which the second reads what the first wrote; with and without
// the warp barrier that is not enough.
void WarpBarrierOnly(float* x);
void Recurse(int depth, int* x);
void Trap();
void Loop(int times, float* x);

}  // namespace onnx_fp8::emulation_test
