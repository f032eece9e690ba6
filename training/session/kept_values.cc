// SPDX-License-Identifier: Apache-2.0
#include "training/session/kept_values.h"

namespace onnx_fp8 {

bool IsLargeWeight(const Value& value) {
  constexpr int64_t kLarge = 1 << 18;
  const bool weight =
      value.role == Role::kParameter || value.role == Role::kFrozen ||
      value.role == Role::kMoment || value.role == Role::kAverage ||
      value.role == Role::kCorrection;
  return weight && NumElements(*value.shape) >= kLarge;
}

bool MustBeFinite(const Graph& model, const std::string& name) {
  const Value* value = model.Find(name);
  return !value ||
         (value->role != Role::kFrozen && value->role != Role::kBound);
}

}  // namespace onnx_fp8
