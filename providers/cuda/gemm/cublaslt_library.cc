// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include "base/check.h"
#include "providers/cuda/core/find_function.h"
#include "providers/cuda/gemm/cublaslt.h"

namespace onnx_fp8::cuda {
namespace {

void* OpenLibrary() {
  for (const char* name : {"libcublasLt.so.13", "libcublasLt.so.12"}) {
    if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return library;
  }
  Fail(
      "[provider cuda] expected the library libcublasLt.so.13 or .12, got "
      "none: install CUDA's cuBLAS, or put its folder into LD_LIBRARY_PATH");
}

CublasLt Load() {
  void* library = OpenLibrary();  // for the rest of the process
  CublasLt lt = {};
#define ONNX_FP8_FIND(name) \
  FindFunction(library, "libcublasLt", "cublasLt" #name, &lt.name)
  ONNX_FP8_FIND(Create);
  ONNX_FP8_FIND(Destroy);
  ONNX_FP8_FIND(GetVersion);
  ONNX_FP8_FIND(GetStatusName);
  ONNX_FP8_FIND(Matmul);
  ONNX_FP8_FIND(MatmulAlgoCheck);
  ONNX_FP8_FIND(MatmulAlgoGetHeuristic);
  ONNX_FP8_FIND(MatmulDescCreate);
  ONNX_FP8_FIND(MatmulDescDestroy);
  ONNX_FP8_FIND(MatmulDescSetAttribute);
  ONNX_FP8_FIND(MatrixLayoutCreate);
  ONNX_FP8_FIND(MatrixLayoutDestroy);
  ONNX_FP8_FIND(MatrixLayoutSetAttribute);
  ONNX_FP8_FIND(MatmulPreferenceCreate);
  ONNX_FP8_FIND(MatmulPreferenceDestroy);
  ONNX_FP8_FIND(MatmulPreferenceSetAttribute);
#undef ONNX_FP8_FIND
  return lt;
}

}  // namespace

const CublasLt& CublasLtFunctions() {
  static const CublasLt functions = Load();
  return functions;
}

}  // namespace onnx_fp8::cuda
