// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/emulation_test/lt_product.h"

#include <vector>

#include "base/check.h"
#include "tests/cuda/emulation_test/device_arrays.h"

namespace onnx_fp8::emulation_test {
namespace {

template <typename T>
void Set(cublasLtMatmulDesc_t o, cublasLtMatmulDescAttributes_t key, T value) {
  Must(cublasLtMatmulDescSetAttribute(o, key, &value, sizeof value));
}

template <typename T>
void Set(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t key,
         T value) {
  Must(cublasLtMatrixLayoutSetAttribute(layout, key, &value, sizeof value));
}

// The descriptors of a product, destroyed at its end.
class Descriptors {
 public:
  explicit Descriptors(const LtProduct& p) {
    Must(cublasLtCreate(&handle));
    Must(cublasLtMatmulPreferenceCreate(&preference));
    SetPreference(p);
    Must(cublasLtMatmulDescCreate(&operation, p.compute, p.scale_type));
    SetOperation(p);
    bool ta = p.op_a == CUBLAS_OP_T, tb = p.op_b == CUBLAS_OP_T;
    a = Layout(p, p.a, ta ? p.k : p.m, ta ? p.m : p.k, p.lda, p.stride_a);
    b = Layout(p, p.b, tb ? p.n : p.k, tb ? p.k : p.n, p.ldb, p.stride_b);
    c = Layout(p, p.c, p.m, p.n, p.ldc, p.stride_c);
    d = Layout(p, p.d, p.m, p.n, p.ldd, p.stride_d);
    if (p.batch_c) Set(c, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, p.batch_c);
  }

  ~Descriptors() {
    for (auto layout : {a, b, c, d}) cublasLtMatrixLayoutDestroy(layout);
    cublasLtMatmulDescDestroy(operation);
    cublasLtMatmulPreferenceDestroy(preference);
    cublasLtDestroy(handle);
  }
  Descriptors(const Descriptors&) = delete;
  Descriptors& operator=(const Descriptors&) = delete;

  // The algorithm of this number.
  cublasLtMatmulHeuristicResult_t Find(int number) const {
    std::vector<cublasLtMatmulHeuristicResult_t> found(number + 1);
    int count = 0;
    Must(cublasLtMatmulAlgoGetHeuristic(handle, operation, a, b, c, d,
                                        preference, number + 1, found.data(),
                                        &count));
    Check(count == number + 1, "expected ", number + 1, " algorithms");
    return found.back();
  }

  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr, d = nullptr;

 private:
  void SetPreference(const LtProduct& p) {
    Must(cublasLtMatmulPreferenceSetAttribute(
        preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
        &p.workspace_bytes, sizeof p.workspace_bytes));
    if (p.alignment == 0) return;
    for (auto key : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
                     CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                     CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
                     CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      Must(cublasLtMatmulPreferenceSetAttribute(preference, key, &p.alignment,
                                                sizeof p.alignment));
    }
  }

  void SetOperation(const LtProduct& p) {
    Set(operation, CUBLASLT_MATMUL_DESC_TRANSA, p.op_a);
    Set(operation, CUBLASLT_MATMUL_DESC_TRANSB, p.op_b);
    Set(operation, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, p.a_mode);
    Set(operation, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, p.b_mode);
    Set(operation, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, p.a_scale);
    Set(operation, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, p.b_scale);
    Set(operation, CUBLASLT_MATMUL_DESC_D_SCALE_POINTER, p.d_scale);
    Set(operation, CUBLASLT_MATMUL_DESC_AMAX_D_POINTER, p.amax);
    Set(operation, CUBLASLT_MATMUL_DESC_EPILOGUE, p.epilogue);
    Set(operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
    if (p.bias_type >= 0) {
      Set(operation, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, p.bias_type);
    }
  }

  static cublasLtMatrixLayout_t Layout(const LtProduct& p, cudaDataType type,
                                       int rows, int columns, int ld,
                                       int64_t stride) {
    cublasLtMatrixLayout_t layout = nullptr;
    Must(cublasLtMatrixLayoutCreate(&layout, type, static_cast<uint64_t>(rows),
                                    static_cast<uint64_t>(columns),
                                    ld ? ld : rows));
    Set(layout, CUBLASLT_MATRIX_LAYOUT_ORDER, p.order);
    Set(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, p.batch);
    Set(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, stride);
    return layout;
  }
};

}  // namespace

void LtProduct::Run(const void* A, const void* B, const void* C,
                    void* D) const {
  Descriptors t(*this);
  cublasLtMatmulHeuristicResult_t found = t.Find(algorithm);
  Must(cublasLtMatmul(t.handle, t.operation, &alpha, A, t.a, B, t.b, &beta, C,
                      t.c, D, t.d, &found.algo, workspace, workspace_bytes,
                      stream));
}

void LtProduct::Ask() const { Descriptors(*this).Find(0); }

}  // namespace onnx_fp8::emulation_test
