// SPDX-License-Identifier: Apache-2.0
#include "training/run/batch_groups.h"

#include <algorithm>

namespace onnx_fp8 {

BatchGroups::Group BatchGroups::OfStep(int64_t step) const {
  if (per_epoch_ == 0) return {step * grad_accum_, grad_accum_};
  const int64_t epoch = step / steps_per_epoch();
  const int64_t before = step % steps_per_epoch() * grad_accum_;
  return {epoch * per_epoch_ + before,
          std::min(grad_accum_, per_epoch_ - before)};
}

int64_t BatchGroups::steps_per_epoch() const {
  const int64_t whole = per_epoch_ / grad_accum_;
  return whole + (rest() > 0);
}

int64_t BatchGroups::rest() const { return per_epoch_ % grad_accum_; }

}  // namespace onnx_fp8
