// SPDX-License-Identifier: Apache-2.0
#include "training/gradients/rule.h"

namespace onnx_fp8 {
namespace {

using C = GradientContext;

Value* Gemm(Builder& b, Value* a, Value* w, bool trans_a, bool trans_w,
            float alpha = 1) {
  return b.Op("Gemm", {a, w},
              {{"transA", static_cast<int64_t>(trans_a)},
               {"transB", static_cast<int64_t>(trans_w)},
               {"alpha", alpha}});
}

// a (…,M,K), w (K,N), y (…,M,N): one GEMM over all leading axes of a, so that
// dw contracts over all of them at once.
void MatMulByMatrix(C& c, Value* a, Value* w, Value* dy) {
  Builder& b = c.b;
  int64_t k = w->dim(0), n = w->dim(1);
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < a->shape->size(); ++i) rows *= (*a->shape)[i];
  Value* dy2 = b.Reshape(dy, {rows, n});
  if (c.Needs(0)) {
    Value* da = Gemm(b, dy2, w, false, true);
    c.Set(0, b.Reshape(da, *c.In(0)->shape));
  }
  if (c.Needs(1)) {
    Value* dw = Gemm(b, b.Reshape(a, {rows, k}), dy2, true, false);
    c.Set(1, b.Reshape(dw, *c.In(1)->shape));
  }
}

// A vector on the left is a row, one on the right a column.
void MatMul(C& c) {
  Builder& b = c.b;
  Value *a = c.In(0), *w = c.In(1), *dy = c.Dy();
  Shape full = *dy->shape;
  if (w->rank() == 1) full.push_back(1);
  if (a->rank() == 1) full.insert(full.end() - 1, 1);
  dy = b.Reshape(dy, full);
  if (a->rank() == 1) a = b.Reshape(a, {1, a->dim(0)});
  if (w->rank() == 1) w = b.Reshape(w, {w->dim(0), 1});
  if (w->rank() == 2) return MatMulByMatrix(c, a, w, dy);
  if (c.Needs(0)) {
    Value* da = b.SumTo(b.Op("MatMul", {dy, b.SwapLast(w)}), *a->shape);
    c.Set(0, b.Reshape(da, *c.In(0)->shape));
  }
  if (c.Needs(1)) c.Set(1, b.Op("MatMul", {b.SwapLast(a), dy}));
}

// y = alpha A' B' + beta C, where A' is A or its transpose. Gradients are
// Gemm nodes with flags, no Transpose.
void Gemm(C& c) {
  Builder& b = c.b;
  Value *A = c.In(0), *B = c.In(1), *dy = c.Dy();
  bool ta = c.node.Int("transA", 0) != 0, tb = c.node.Int("transB", 0) != 0;
  float alpha = c.node.Float("alpha", 1), beta = c.node.Float("beta", 1);
  if (c.Needs(0)) {
    c.Set(0, ta ? Gemm(b, B, dy, tb, true, alpha)
                : Gemm(b, dy, B, false, !tb, alpha));
  }
  if (c.Needs(1)) {
    c.Set(1, tb ? Gemm(b, dy, A, true, ta, alpha)
                : Gemm(b, A, dy, !ta, false, alpha));
  }
  if (c.Needs(2)) {
    c.Set(2, beta == 1 ? dy : b.Mul(dy, b.Scalar(beta, dy)));
  }
}

}  // namespace

void RegisterMatMulGradients(GradientRegistry& r) {
  r.Add("Gemm", Gemm);
  r.Add("MatMul", MatMul);
}

}  // namespace onnx_fp8
