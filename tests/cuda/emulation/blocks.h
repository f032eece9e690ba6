// SPDX-License-Identifier: Apache-2.0
//
// Runs a kernel's blocks one after another, each thread of a block on a stack
// of its own. A thread gives way only where it waits for others: it runs as far
// ahead of them as CUDA allows, so that a missing barrier shows.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace onnx_fp8::emulation {

struct Grid {
  const void* kernel = nullptr;
  dim3 grid, block;
  size_t shared = 0;                           // dynamic
  std::vector<const void*> pointers;           // among the arguments
  void (*thread)(const void* call) = nullptr;  // what one thread does
  void (*drop)(const void* call) = nullptr;
  const void* call = nullptr;  // holds the arguments
  size_t call_bytes = 0;
};

// Adds a launch to the stream. Errors: as a real launch's. Drops the call when
// it is not needed any more.
cudaError_t LaunchGrid(const Grid& grid, cudaStream_t stream);

// The dynamic shared memory that a block of this kernel may have
// (cudaFuncSetAttribute).
void GrantShared(const void* kernel, size_t bytes);
size_t GrantedShared(const void* kernel);

// Runs all blocks. Errors: Fault (faults.h).
void RunGrid(const Grid& grid);

// Whether this thread of the host runs a kernel.
bool InKernel();
// Leaves the kernel, also from a signal handler. RunGrid then returns.
[[noreturn]] void AbandonKernel();
// "block (1,0,0) thread (5,0,0) of AddKernel". REQUIRES: InKernel().
std::string WhereInKernel();
bool InStackGuard(const void* p);

}  // namespace onnx_fp8::emulation
