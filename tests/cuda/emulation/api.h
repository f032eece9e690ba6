// SPDX-License-Identifier: Apache-2.0
//
// What all functions of the C interface begin and end with.
#pragma once

#include <cuda_runtime_api.h>

#include <mutex>

namespace onnx_fp8::emulation {

// The error that device code made, which every later call returns.
cudaError_t StickyError();
void SetStickyError(cudaError_t error);

// Remembers an error for cudaGetLastError, and returns it.
cudaError_t Return(cudaError_t error);
// Without and with forgetting it.
cudaError_t PeekLastError();
cudaError_t TakeLastError();

// Counts a call and keeps other threads out until it ends. Pending work runs on
// the thread that waits for it.
class ApiCall {
 public:
  explicit ApiCall(const char* function);
  ApiCall(const ApiCall&) = delete;
  ApiCall& operator=(const ApiCall&) = delete;

  // Why the call can't be made now.
  cudaError_t error() const { return error_; }

 private:
  std::unique_lock<std::recursive_mutex> lock_;
  cudaError_t error_ = cudaSuccess;
};

// Whether another thread than this one is inside a call. Waits for it.
std::unique_lock<std::recursive_mutex> WaitForOtherThreads();

// While one lives, a stream calls a function of the host, which may not call
// us.
class HostFunctionRuns {
 public:
  HostFunctionRuns();
  ~HostFunctionRuns();
  HostFunctionRuns(const HostFunctionRuns&) = delete;
  HostFunctionRuns& operator=(const HostFunctionRuns&) = delete;
};

// A function of the C interface whose body is `call`, a cudaError_t().
template <typename F>
cudaError_t Api(const char* function, F call) {
  ApiCall guard(function);
  if (guard.error() != cudaSuccess) return Return(guard.error());
  return Return(call());
}

}  // namespace onnx_fp8::emulation
