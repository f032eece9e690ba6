// SPDX-License-Identifier: Apache-2.0
//
// The samples of a loss over classes: scores are (N, C), labels (N); other axes
// of one element may follow. A label that is no class is complained of.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "providers/arguments.h"
#include "providers/cuda/core/complain.h"
#include "providers/cuda/core/queue.h"

namespace onnx_fp8::cuda {

inline constexpr int64_t kLeftOut = -1, kNoClass = -2;

struct Labels {
  const void* data;
  bool wide;  // int64, else int32
  bool can_ignore;
  int64_t ignored, classes;
  Complaint* complaint;
  uint32_t message;

  // The class of sample i, or kLeftOut, or kNoClass and a complaint.
  __device__ int64_t At(int64_t i) const {
    int64_t label = wide ? static_cast<const int64_t*>(data)[i]
                         : static_cast<const int32_t*>(data)[i];
    if (can_ignore && label == ignored) return kLeftOut;
    if (label >= 0 && label < classes) return label;
    Complain(complaint, message, label);
    return kNoClass;
  }
};

inline Labels LabelsOf(const KernelContext& ctx, const Tensor& labels,
                       int64_t classes, bool can_ignore, int64_t ignored) {
  Queue& queue = QueueOf(ctx);
  std::string message = Concat(
      "[", ctx.Where(), "] expected labels in 0 … ", classes - 1,
      can_ignore ? Concat(" or ", ignored, " (left out)") : "", ", got ");
  return {labels.raw(),
          labels.dtype() == DType::kInt64,
          can_ignore,
          ignored,
          classes,
          queue.complaint(),
          queue.MessageNumber(message)};
}

struct Samples {
  int64_t n, classes, inner;
  Shape shape;  // of the labels
  Labels labels;
};

// Errors: scores that have no classes.
inline const Shape& ScoresShape(const KernelContext& ctx,
                                const Tensor& scores) {
  Check(scores.rank() >= 2, "[", ctx.Where(),
        "] expected scores of shape (N, C, …), got ", ToString(scores.shape()));
  return scores.shape();
}

// Errors: shapes that do not fit.
inline Samples SamplesOf(const KernelContext& ctx, const Tensor& scores,
                         const Tensor& labels, bool can_ignore,
                         int64_t ignored) {
  Shape expected = ScoresShape(ctx, scores);
  Samples s = {};
  s.n = expected[0];
  s.classes = expected[1];
  expected.erase(expected.begin() + 1);
  Check(labels.shape() == expected, "[", ctx.Where(),
        "] expected labels of shape ", ToString(expected), ", got ",
        ToString(labels.shape()));
  Check(labels.dtype() == DType::kInt32 || labels.dtype() == DType::kInt64, "[",
        ctx.Where(), "] expected int32 or int64 labels, got ",
        Name(labels.dtype()));
  s.inner = s.n == 0 ? 0 : labels.size() / s.n;
  s.shape = std::move(expected);
  s.labels = LabelsOf(ctx, labels, s.classes, can_ignore, ignored);
  return s;
}

// Errors: other axes have several elements.
inline void CheckOnePerRow(const KernelContext& ctx, const Samples& s,
                           const Tensor& scores) {
  Check(s.inner == 1 || s.n == 0, "[", ctx.Where(),
        "] expected scores (N, C), got ", ToString(scores.shape()));
}

}  // namespace onnx_fp8::cuda
