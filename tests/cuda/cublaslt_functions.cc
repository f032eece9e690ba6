// SPDX-License-Identifier: Apache-2.0
// The emulation's functions in place of the machine's library.
#include "providers/cuda/gemm/cublaslt.h"

namespace onnx_fp8::cuda {

const CublasLt& CublasLtFunctions() {
  static const CublasLt functions = {
      .Create = cublasLtCreate,
      .Destroy = cublasLtDestroy,
      .GetVersion = cublasLtGetVersion,
      .GetStatusName = cublasLtGetStatusName,
      .Matmul = cublasLtMatmul,
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
