// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include "base/check.h"
#include "providers/cuda/core/find_function.h"
#include "providers/cuda/profiling/cupti.h"

namespace onnx_fp8::cuda {
namespace {

void* OpenCupti() {
  for (const char* name : {"libcupti.so.13", "libcupti.so.12"}) {
    if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return library;
  }
  Fail(
      "[provider cuda] expected the library libcupti.so.13 or .12 for a "
      "timeline, got none: put its folder into LD_LIBRARY_PATH; the toolkit "
      "has "
      "it in extras/CUPTI/lib64, PyTorch in its package nvidia-cuda-cupti");
}

Cupti LoadCupti() {
  void* library = OpenCupti();  // for the rest of the process
  Cupti cupti = {};
#define ONNX_FP8_FIND(name) \
  FindFunction(library, "libcupti", "cupti" #name, &cupti.name)
  ONNX_FP8_FIND(GetTimestamp);
  ONNX_FP8_FIND(GetResultString);
  ONNX_FP8_FIND(ActivityRegisterCallbacks);
  ONNX_FP8_FIND(ActivityEnable);
  ONNX_FP8_FIND(ActivityDisable);
  ONNX_FP8_FIND(ActivityFlushAll);
  ONNX_FP8_FIND(ActivityGetNextRecord);
  ONNX_FP8_FIND(ActivityGetNumDroppedRecords);
#undef ONNX_FP8_FIND
  return cupti;
}

}  // namespace

const Cupti& CuptiFunctions() {
  static const Cupti functions = LoadCupti();
  return functions;
}

}  // namespace onnx_fp8::cuda
