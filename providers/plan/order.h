// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace onnx_fp8 {

// Step `writer` would like to overwrite memory in place that `readers` read:
// all of them must run before it (write after read).
struct InPlaceWrite {
  int writer;
  std::vector<int> readers;  // without the writer itself
  size_t bytes;              // cost of a copy instead
  bool granted = true;       // set by OrderSteps
};

// The order of the steps 0 … n-1 that keeps `edges` (from, to), puts the
// readers of every granted write before its writer, and otherwise differs as
// little as possible from the order `given`. If the writes close a cycle, the
// cheapest write on it is not granted. If the edges themselves have a cycle,
// the order ends there: it is shorter than n. O((n + edges) log n), apart from
// the cycles.
std::vector<int> OrderSteps(const std::vector<int>& given,
                            const std::vector<std::pair<int, int>>& edges,
                            std::vector<InPlaceWrite>& writes);

}  // namespace onnx_fp8
