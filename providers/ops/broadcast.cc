// SPDX-License-Identifier: Apache-2.0
#include "providers/ops/broadcast.h"

#include <cassert>

namespace onnx_fp8 {

std::vector<int64_t> BroadcastStrides(const Shape& shape, size_t rank) {
  std::vector<int64_t> own = Strides(shape), strides(rank, 0);
  size_t missing = rank - shape.size();
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] != 1) strides[missing + i] = own[i];
  }
  return strides;
}

BroadcastPlan PlanBroadcast(const std::vector<Shape>& operands,
                            const Shape& result) {
  BroadcastPlan plan{NumElements(result), {}, {}};
  std::vector<int64_t> next(operands.size(), 1);  // natural strides
  for (size_t i = 0; i < result.size(); ++i) {    // i counts from the innermost
    int64_t size = result[result.size() - 1 - i];
    std::vector<int64_t> strides(operands.size(), 0);
    for (size_t k = 0; k < operands.size(); ++k) {
      const Shape& shape = operands[k];
      int64_t dim = i < shape.size() ? shape[shape.size() - 1 - i] : 1;
      assert(dim == 1 || dim == size);
      if (dim != 1) strides[k] = next[k];
      next[k] *= dim;
    }
    if (size == 1) continue;
    bool merges = !plan.sizes.empty();
    for (size_t k = 0; k < operands.size() && merges; ++k) {
      merges = strides[k] == plan.strides.back()[k] * plan.sizes.back();
    }
    if (merges) {
      plan.sizes.back() *= size;
    } else {
      plan.sizes.push_back(size);
      plan.strides.push_back(std::move(strides));
    }
  }
  if (plan.sizes.empty()) {
    plan.sizes.push_back(1);
    plan.strides.emplace_back(operands.size(), 0);
  }
  std::ranges::reverse(plan.sizes);
  std::ranges::reverse(plan.strides);
  return plan;
}

}  // namespace onnx_fp8
