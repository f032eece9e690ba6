// SPDX-License-Identifier: Apache-2.0
//
// The labels of samples on a device. A label that is no class is complained of.
#pragma once

#include <cstdint>

#include "providers/cuda/core/complain.h"
#include "providers/cuda/core/queue.h"
#include "providers/ops/samples.h"

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
  return {
      labels.raw(),
      labels.dtype() == DType::kInt64,
      can_ignore,
      ignored,
      classes,
      queue.complaint(),
      queue.MessageNumber(ExpectedLabels(ctx, classes, can_ignore, ignored))};
}

struct Samples : SampleSizes {
  Labels labels;
};

// Errors: as SizesOf's.
inline Samples SamplesOf(const KernelContext& ctx, const Tensor& scores,
                         const Tensor& labels, bool can_ignore,
                         int64_t ignored) {
  const SampleSizes sizes = SizesOf(ctx, scores, labels);
  return {sizes, LabelsOf(ctx, labels, sizes.classes, can_ignore, ignored)};
}

}  // namespace onnx_fp8::cuda
