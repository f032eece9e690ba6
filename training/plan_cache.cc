// SPDX-License-Identifier: Apache-2.0
#include "training/plan_cache.h"

#include <algorithm>
#include <utility>

namespace onnx_fp8 {

bool PlanKey::Fits(const PlanKey& wanted) const {
  return kind == wanted.kind && input_gradients == wanted.input_gradients &&
         shapes == wanted.shapes && sums == wanted.sums &&
         std::ranges::includes(wanted.values, values);
}

PlannedStep* PlanCache::Find(const PlanKey& wanted) {
  auto known = std::ranges::find_if(plans_, [&](const PlannedStep& planned) {
    return planned.key.Fits(wanted);
  });
  if (known == plans_.end()) return nullptr;
  plans_.splice(plans_.begin(), plans_, known);
  return &plans_.front();
}

PlannedStep& PlanCache::Keep(PlannedStep planned) {
  plans_.push_front(std::move(planned));
  if (static_cast<int64_t>(plans_.size()) > most_) plans_.pop_back();
  return plans_.front();
}

void PlanCache::ForgetWeightCopies() {
  for (PlannedStep& planned : plans_) planned.weight_copies.clear();
}

}  // namespace onnx_fp8
