// SPDX-License-Identifier: Apache-2.0
// The emulation's functions in place of the machine's library. What it chooses
// is no use to others, so the user's cache is not written.
#include <cstdlib>

#include "providers/cuda/gemm/cublaslt.h"

namespace onnx_fp8::cuda {
namespace {

[[maybe_unused]] const int kNoCache = setenv("XDG_CACHE_HOME", "/dev/null", 1);

}  // namespace

const CublasLt& CublasLtFunctions() {
  static const CublasLt functions = {
      .Create = cublasLtCreate,
      .Destroy = cublasLtDestroy,
      .GetVersion = cublasLtGetVersion,
      .GetStatusName = cublasLtGetStatusName,
      .Matmul = cublasLtMatmul,
      .MatmulAlgoCheck = cublasLtMatmulAlgoCheck,
      .MatmulAlgoGetHeuristic = cublasLtMatmulAlgoGetHeuristic,
      .MatmulDescCreate = cublasLtMatmulDescCreate,
      .MatmulDescDestroy = cublasLtMatmulDescDestroy,
      .MatmulDescSetAttribute = cublasLtMatmulDescSetAttribute,
      .MatrixLayoutCreate = cublasLtMatrixLayoutCreate,
      .MatrixLayoutDestroy = cublasLtMatrixLayoutDestroy,
      .MatrixLayoutSetAttribute = cublasLtMatrixLayoutSetAttribute,
      .MatmulPreferenceCreate = cublasLtMatmulPreferenceCreate,
      .MatmulPreferenceDestroy = cublasLtMatmulPreferenceDestroy,
      .MatmulPreferenceSetAttribute = cublasLtMatmulPreferenceSetAttribute};
  return functions;
}

}  // namespace onnx_fp8::cuda
