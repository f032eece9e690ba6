// SPDX-License-Identifier: Apache-2.0
//
// The C interface: errors.
#include <cuda_runtime_api.h>

#include "tests/cuda/emulation/api.h"

namespace onnx_fp8::emulation {
namespace {

struct ErrorText {
  cudaError_t error;
  const char *name, *text;
};

#define ONNX_FP8_ERROR(error, text) \
  { error, #error, text }
constexpr ErrorText kErrors[] = {
    ONNX_FP8_ERROR(cudaSuccess, "no error"),
    ONNX_FP8_ERROR(cudaErrorInvalidValue, "invalid argument"),
    ONNX_FP8_ERROR(cudaErrorMemoryAllocation, "out of memory"),
    ONNX_FP8_ERROR(cudaErrorInvalidConfiguration,
                   "invalid configuration argument"),
    ONNX_FP8_ERROR(cudaErrorInvalidPitchValue, "invalid pitch argument"),
    ONNX_FP8_ERROR(cudaErrorInvalidMemcpyDirection,
                   "invalid copy direction for memcpy"),
    ONNX_FP8_ERROR(cudaErrorInvalidDevice, "invalid device ordinal"),
    ONNX_FP8_ERROR(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    ONNX_FP8_ERROR(cudaErrorIllegalState,
                   "the operation cannot be performed in the present state"),
    ONNX_FP8_ERROR(cudaErrorNotReady, "device not ready"),
    ONNX_FP8_ERROR(cudaErrorIllegalAddress,
                   "an illegal memory access was encountered"),
    ONNX_FP8_ERROR(cudaErrorLaunchTimeout,
                   "the launch timed out and was terminated"),
    ONNX_FP8_ERROR(cudaErrorMisalignedAddress, "misaligned address"),
    ONNX_FP8_ERROR(cudaErrorLaunchFailure, "unspecified launch failure"),
    ONNX_FP8_ERROR(cudaErrorNotPermitted, "operation not permitted"),
    ONNX_FP8_ERROR(cudaErrorNotSupported, "operation not supported"),
    ONNX_FP8_ERROR(cudaErrorStreamCaptureUnsupported,
                   "operation not permitted when stream is capturing"),
    ONNX_FP8_ERROR(cudaErrorStreamCaptureInvalidated,
                   "operation failed due to a previous error during capture"),
    ONNX_FP8_ERROR(cudaErrorStreamCaptureMerge,
                   "operation would result in a merge of separate capture "
                   "sequences"),
    ONNX_FP8_ERROR(cudaErrorStreamCaptureUnmatched,
                   "capture was not ended in the same stream as it began"),
    ONNX_FP8_ERROR(cudaErrorStreamCaptureUnjoined,
                   "capturing stream has unjoined work"),
    ONNX_FP8_ERROR(cudaErrorStreamCaptureIsolation,
                   "dependency created on uncaptured work in another stream"),
    ONNX_FP8_ERROR(cudaErrorStreamCaptureImplicit,
                   "operation would make the legacy stream depend on a "
                   "capturing blocking stream"),
    ONNX_FP8_ERROR(
        cudaErrorCapturedEvent,
        "operation not permitted on an event last recorded in a capturing "
        "stream"),
};
#undef ONNX_FP8_ERROR

constexpr ErrorText kUnknown = {cudaErrorUnknown, "cudaErrorUnknown",
                                "unknown error"};

const ErrorText& TextOf(cudaError_t error) {
  for (const ErrorText& text : kErrors) {
    if (text.error == error) return text;
  }
  return kUnknown;
}

}  // namespace

extern "C" {

cudaError_t cudaPeekAtLastError() {
  ApiCall call(__func__);
  return PeekLastError();
}

cudaError_t cudaGetLastError() {
  ApiCall call(__func__);
  return TakeLastError();
}

const char* cudaGetErrorName(cudaError_t error) { return TextOf(error).name; }

const char* cudaGetErrorString(cudaError_t error) { return TextOf(error).text; }

}  // extern "C"
}  // namespace onnx_fp8::emulation
