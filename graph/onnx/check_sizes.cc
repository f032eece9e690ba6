// SPDX-License-Identifier: Apache-2.0
#include "graph/onnx/check_sizes.h"

#include <algorithm>

#include "base/check.h"

namespace onnx_fp8 {

bool Plausible(const Shape& shape) {
  if (static_cast<int64_t>(shape.size()) > kMaxRank) return false;
  int64_t count = 1;
  for (int64_t size : shape) {
    size = std::max<int64_t>(size, 1);
    if (size > kMaxElements / count) return false;
    count *= size;
  }
  return true;
}

void CheckSizes(const Node& node, const std::vector<Value*>& values) {
  for (const Value* value : values) {
    if (!value || !value->shape || Plausible(*value->shape)) continue;
    Fail("[", node.Where(), "] expected a tensor that fits into memory, got ",
         ToString(*value->shape));
  }
}

}  // namespace onnx_fp8
