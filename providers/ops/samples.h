// SPDX-License-Identifier: Apache-2.0
//
// The samples of a loss over classes: scores are (N, C, D…), labels (N, D…). A
// sample is one of the N · D… places of labels.
#pragma once

#include <cstdint>
#include <string>

#include "base/check.h"
#include "onnx_fp8/tensor.h"
#include "providers/kernel.h"

namespace onnx_fp8 {

struct SampleSizes {
  int64_t n = 0, classes = 0, inner = 0;  // inner: the product of D…
  Shape shape;                            // of the labels
};

// Errors: scores that have no classes.
inline const Shape& ScoresShape(const KernelContext& ctx,
                                const Tensor& scores) {
  Check(scores.rank() >= 2, "[", ctx.Where(),
        "] expected scores of shape (N, C, …), got ", ToString(scores.shape()));
  return scores.shape();
}

// Errors: shapes that do not fit, labels that are no integers.
inline SampleSizes SizesOf(const KernelContext& ctx, const Tensor& scores,
                           const Tensor& labels) {
  SampleSizes s = {.shape = ScoresShape(ctx, scores)};
  s.n = s.shape[0];
  s.classes = s.shape[1];
  s.shape.erase(s.shape.begin() + 1);
  Check(labels.shape() == s.shape, "[", ctx.Where(),
        "] expected labels of shape ", ToString(s.shape), ", got ",
        ToString(labels.shape()));
  Check(labels.dtype() == DType::kInt32 || labels.dtype() == DType::kInt64, "[",
        ctx.Where(), "] expected int32 or int64 labels, got ",
        Name(labels.dtype()));
  s.inner = s.n == 0 ? 0 : labels.size() / s.n;
  return s;
}

// Errors: other axes have several elements.
inline void CheckOnePerRow(const KernelContext& ctx, const SampleSizes& s,
                           const Tensor& scores) {
  Check(s.inner == 1 || s.n == 0, "[", ctx.Where(),
        "] expected scores (N, C), got ", ToString(scores.shape()));
}

// The message for a label that is no class, but for the label itself.
inline std::string ExpectedLabels(const KernelContext& ctx, int64_t classes,
                                  bool can_ignore, int64_t ignored) {
  return Concat("[", ctx.Where(), "] expected labels in 0 … ", classes - 1,
                can_ignore ? Concat(" or ", ignored, " (left out)") : "",
                ", got ");
}

}  // namespace onnx_fp8
