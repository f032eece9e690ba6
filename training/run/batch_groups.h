// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "onnx_fp8/dataset.h"
#include "onnx_fp8/session.h"

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

  // The steps of so many epochs; 0: the length of an epoch is not known.
  int64_t StepsOf(int64_t epochs) const;
  // Whether an epoch ends in the last of `steps` steps. If an epoch has less
  // than `fewest` steps, only every k-th end counts, with the smallest k for
  // which k epochs have `fewest` steps.
  bool EndsEpoch(int64_t steps, int64_t fewest) const;
  // Batches of the last group of an epoch; 0: it is as large as the others.
  int64_t rest() const;

 private:
  // Batches of an epoch, rounded up to whole groups.
  int64_t places() const;

  int64_t grad_accum_;
  int64_t per_epoch_;
  bool may_be_smaller_;
};

// The groups of a session's steps on the data.
BatchGroups GroupsOf(const TrainingSession& session, const Dataset& data,
                     int64_t grad_accum);

}  // namespace onnx_fp8
