// SPDX-License-Identifier: Apache-2.0
//
// cuBLASLt's C interface. It says why it refuses a product, which the real one
// does not.
#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "tests/cuda/emulation/api.h"
#include "tests/cuda/emulation/cublaslt_call.h"
#include "tests/cuda/emulation/cublaslt_problem.h"
#include "tests/cuda/emulation/emulation.h"
#include "tests/cuda/emulation/reports.h"

namespace onnx_fp8::emulation {
namespace {

// Calls f between what each function begins and ends with.
template <typename F>
cublasStatus_t LtApi(const char* function, F f) {
  ApiCall call(function);
  return call.error() == cudaSuccess ? f() : CUBLAS_STATUS_EXECUTION_FAILED;
}

template <typename T, typename Handle, typename... Args>
cublasStatus_t Create(const char* function, Handle* handle, Args... args) {
  return LtApi(function, [&] {
    *handle = reinterpret_cast<Handle>(new T{args...});
    return CUBLAS_STATUS_SUCCESS;
  });
}

template <typename T, typename Handle>
cublasStatus_t Delete(const char* function, Handle handle) {
  ApiCall call(function);
  delete reinterpret_cast<T*>(handle);
  return CUBLAS_STATUS_SUCCESS;
}

template <typename T, typename Handle>
T& As(Handle handle) {
  return *reinterpret_cast<T*>(handle);
}

size_t SizeOfAttribute(cublasLtMatmulDescAttributes_t key) {
  switch (key) {
    case CUBLASLT_MATMUL_DESC_POINTER_MODE:
    case CUBLASLT_MATMUL_DESC_TRANSA:
    case CUBLASLT_MATMUL_DESC_TRANSB:
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
    case CUBLASLT_MATMUL_DESC_A_SCALE_MODE:
    case CUBLASLT_MATMUL_DESC_B_SCALE_MODE:
    case CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET:
      return 4;
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
    case CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE:
    case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER:
    case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER:
    case CUBLASLT_MATMUL_DESC_D_SCALE_POINTER:
    case CUBLASLT_MATMUL_DESC_AMAX_D_POINTER:
      return 8;
    case CUBLASLT_MATMUL_DESC_FAST_ACCUM:
      return 1;
    default:
      return 0;
  }
}

size_t SizeOfAttribute(cublasLtMatrixLayoutAttribute_t key) {
  switch (key) {
    case CUBLASLT_MATRIX_LAYOUT_ORDER:
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      return 4;
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      return 8;
    default:
      return 0;
  }
}

size_t SizeOfAttribute(cublasLtMatmulPreferenceAttributes_t key) {
  switch (key) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return 8;
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return 4;
    default:
      return 0;
  }
}

template <typename Key>
cublasStatus_t SetAttribute(const char* function, Attributes& attributes,
                            Key key, const void* value, size_t bytes) {
  return LtApi(function, [&] {
    size_t expected = SizeOfAttribute(key);
    if (expected == 0) {
      Explain(function, ": attribute ", static_cast<int>(key),
              " is not emulated");
      return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    if (!value || bytes != expected) {
      Explain(function, ": attribute ", static_cast<int>(key), " has ",
              expected, " bytes, not ", bytes);
      return CUBLAS_STATUS_INVALID_VALUE;
    }
    attributes[key].assign(static_cast<const char*>(value), bytes);
    return CUBLAS_STATUS_SUCCESS;
  });
}

struct LtHandle {};

}  // namespace

extern "C" {

size_t cublasLtGetVersion() { return CublasLtVersion(); }

const char* cublasLtGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    default:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
  }
}

const char* cublasLtGetStatusString(cublasStatus_t status) {
  return cublasLtGetStatusName(status);
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  return Create<LtHandle>(__func__, handle);
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  return Delete<LtHandle>(__func__, handle);
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout,
                                          cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t ld) {
  return Create<LtLayout>(__func__, layout, type, rows, columns, ld);
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return Delete<LtLayout>(__func__, layout);
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(
    cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t key,
    const void* value, size_t bytes) {
  return SetAttribute(__func__, As<LtLayout>(layout).attributes, key, value,
                      bytes);
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* description,
                                        cublasComputeType_t compute,
                                        cudaDataType_t scale_type) {
  return Create<LtDescription>(__func__, description, compute, scale_type);
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description) {
  return Delete<LtDescription>(__func__, description);
}

cublasStatus_t cublasLtMatmulDescSetAttribute(
    cublasLtMatmulDesc_t description, cublasLtMatmulDescAttributes_t key,
    const void* value, size_t bytes) {
  return SetAttribute(__func__, As<LtDescription>(description).attributes, key,
                      value, bytes);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(
    cublasLtMatmulPreference_t* preference) {
  return Create<LtPreference>(__func__, preference);
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(
    cublasLtMatmulPreference_t preference) {
  return Delete<LtPreference>(__func__, preference);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(
    cublasLtMatmulPreference_t preference,
    cublasLtMatmulPreferenceAttributes_t key, const void* value, size_t bytes) {
  return SetAttribute(__func__, As<LtPreference>(preference).attributes, key,
                      value, bytes);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
    cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
    cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
    cublasLtMatmulPreference_t preference, int wanted,
    cublasLtMatmulHeuristicResult_t results[], int* count) {
  return LtApi(__func__, [&] {
    *count = 0;
    if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (wanted <= 0) return CUBLAS_STATUS_INVALID_VALUE;
    LtProblem problem =
        ReadProblem(As<LtDescription>(description), As<LtLayout>(a),
                    As<LtLayout>(b), As<LtLayout>(c), As<LtLayout>(d));
    return FindAlgorithms(problem, As<LtPreference>(preference), wanted,
                          results, *count);
  });
}

cublasStatus_t cublasLtMatmulAlgoCheck(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
    cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
    cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
    const cublasLtMatmulAlgo_t* algorithm,
    cublasLtMatmulHeuristicResult_t* result) {
  return LtApi(__func__, [&] {
    if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!algorithm || !result) return CUBLAS_STATUS_INVALID_VALUE;
    LtProblem problem =
        ReadProblem(As<LtDescription>(description), As<LtLayout>(a),
                    As<LtLayout>(b), As<LtLayout>(c), As<LtLayout>(d));
    return CheckAlgorithm(problem, *algorithm, *result);
  });
}

cublasStatus_t cublasLtMatmul(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
    const void* alpha, const void* A, cublasLtMatrixLayout_t a, const void* B,
    cublasLtMatrixLayout_t b, const void* beta, const void* C,
    cublasLtMatrixLayout_t c, void* D, cublasLtMatrixLayout_t d,
    const cublasLtMatmulAlgo_t* algorithm, void* workspace,
    size_t workspace_bytes, cudaStream_t stream) {
  return LtApi(__func__, [&] {
    if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!alpha || !beta || !A || !B || !C || !D) {
      Explain("cublasLtMatmul: a null pointer");
      return CUBLAS_STATUS_INVALID_VALUE;
    }
    LtProblem problem =
        ReadProblem(As<LtDescription>(description), As<LtLayout>(a),
                    As<LtLayout>(b), As<LtLayout>(c), As<LtLayout>(d));
    LtOperands operands = {.a = A,
                           .b = B,
                           .c = C,
                           .d = D,
                           .workspace = workspace,
                           .workspace_bytes = workspace_bytes,
                           .alpha = static_cast<const float*>(alpha),
                           .beta = static_cast<const float*>(beta)};
    return EnqueueProduct(problem, operands, algorithm, stream);
  });
}

}  // extern "C"
}  // namespace onnx_fp8::emulation
