// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace onnx_fp8 {

// Which batches the steps of a run take: groups of `grad_accum` batches, one
// behind the other. If a group may be smaller, none crosses the end of an
// epoch: the last one of an epoch takes what is left. Else all groups have the
// same size.
class BatchGroups {
 public:
  // `per_epoch`: batches of an epoch; 0: not known, and no group is smaller.
  BatchGroups(int64_t grad_accum, int64_t per_epoch, bool may_be_smaller)
      : grad_accum_(grad_accum),
        per_epoch_(per_epoch),
        may_be_smaller_(may_be_smaller) {}

  struct Group {
    int64_t first = 0;  // Dataset::Batch's index
    int64_t count = 0;
  };
  // `step`: from 0.
  Group OfStep(int64_t step) const;

  // Steps that so many epochs complete; 0: the length of an epoch is not known.
  int64_t StepsOf(int64_t epochs) const;
  // Whether an epoch ends in the last one of `steps` steps. Of epochs with less
  // than `fewest` steps only every k-th one counts, so that k have as many.
  bool EndsEpoch(int64_t steps, int64_t fewest) const;
  // Batches of the last group of an epoch; 0: it is as large as the others.
  int64_t rest() const;

 private:
  // Batches of an epoch, with the ones that its last group lacks.
  int64_t places() const;

  int64_t grad_accum_;
  int64_t per_epoch_;
  bool may_be_smaller_;
};

}  // namespace onnx_fp8
