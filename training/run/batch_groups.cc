// SPDX-License-Identifier: Apache-2.0
#include "training/run/batch_groups.h"

#include <algorithm>

namespace onnx_fp8 {

BatchGroups::Group BatchGroups::OfStep(int64_t step) const {
  if (rest() == 0) return {step * grad_accum_, grad_accum_};
  const int64_t steps = StepsOf(1);
  const int64_t before = step % steps * grad_accum_;
  return {step / steps * per_epoch_ + before,
          std::min(grad_accum_, per_epoch_ - before)};
}

int64_t BatchGroups::StepsOf(int64_t epochs) const {
  if (rest() == 0) return epochs * per_epoch_ / grad_accum_;
  return epochs * (places() / grad_accum_);
}

bool BatchGroups::EndsEpoch(int64_t steps, int64_t fewest) const {
  if (per_epoch_ == 0) return false;
  const int64_t wanted = fewest * grad_accum_;
  const int64_t period = (wanted + places() - 1) / places() * places();
  return steps * grad_accum_ / period > (steps - 1) * grad_accum_ / period;
}

int64_t BatchGroups::rest() const {
  return may_be_smaller_ ? per_epoch_ % grad_accum_ : 0;
}

int64_t BatchGroups::places() const {
  return per_epoch_ + (rest() > 0 ? grad_accum_ - rest() : 0);
}

BatchGroups GroupsOf(const TrainingSession& session, const Dataset& data,
                     int64_t grad_accum) {
  return {grad_accum, data.batches_per_epoch(), session.TakesSmallerGroups()};
}

}  // namespace onnx_fp8
