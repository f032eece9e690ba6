// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace onnx_fp8 {

// Which batches the steps of a run take: groups of `grad_accum` batches, one
// behind the other. No group crosses the end of an epoch, so the last one of an
// epoch may be smaller.
class BatchGroups {
 public:
  // `per_epoch`: batches of an epoch; 0: not known, and no group is smaller.
  BatchGroups(int64_t grad_accum, int64_t per_epoch)
      : grad_accum_(grad_accum), per_epoch_(per_epoch) {}

  struct Group {
    int64_t first = 0;  // Dataset::Batch's index
    int64_t count = 0;
  };
  // `step`: from 0.
  Group OfStep(int64_t step) const;

  int64_t steps_per_epoch() const;  // 0: not known
  // Batches of the last group of an epoch; 0: it is as large as the others.
  int64_t rest() const;

 private:
  int64_t grad_accum_;
  int64_t per_epoch_;
};

}  // namespace onnx_fp8
