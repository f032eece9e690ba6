// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/emulation/api.h"

#include "tests/cuda/emulation/counts.h"
#include "tests/cuda/emulation/faults.h"
#include "tests/cuda/emulation/reports.h"

namespace onnx_fp8::emulation {
namespace {

std::recursive_mutex mutex;
cudaError_t sticky_error = cudaSuccess, last_error = cudaSuccess;
bool host_function_runs = false;

}  // namespace

cudaError_t StickyError() { return sticky_error; }

void SetStickyError(cudaError_t error) {
  if (sticky_error == cudaSuccess) sticky_error = error;
}

cudaError_t Return(cudaError_t error) {
  if (error == cudaSuccess) error = sticky_error;
  if (error != cudaSuccess && error != cudaErrorNotReady) last_error = error;
  return error;
}

cudaError_t PeekLastError() {
  return sticky_error != cudaSuccess ? sticky_error : last_error;
}

cudaError_t TakeLastError() {
  cudaError_t error = PeekLastError();
  last_error = cudaSuccess;
  return error;
}

ApiCall::ApiCall(const char* function) : lock_(mutex) {
  CatchFaults();
  CountCall(function);
  error_ = sticky_error;
  if (!host_function_runs) return;
  Report("a function that a stream calls must not call ", function);
  error_ = cudaErrorNotPermitted;
}

std::unique_lock<std::recursive_mutex> WaitForOtherThreads() {
  return std::unique_lock(mutex);
}

HostFunctionRuns::HostFunctionRuns() { host_function_runs = true; }

HostFunctionRuns::~HostFunctionRuns() { host_function_runs = false; }

}  // namespace onnx_fp8::emulation
