// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace onnx_fp8 {

// Step `writer` would like to overwrite memory in place that `readers` read:
// they all must run before it (write after read).
struct InPlaceWrite {
  int writer;
  std::vector<int> readers;  // without the writer itself
  size_t bytes;              // what a copy instead would cost
  bool granted = true;       // set by OrderSteps
};

// The order of the steps 0 … n-1 that keeps `edges` (from, to) and the readers
// of every granted write before its writer, and else changes the order `given`
// of them as little as possible. Where the writes close a cycle, the cheapest
// one on it is not granted. If the edges themselves have a cycle, the order
// ends there: it is shorter than n. O((n + edges) log n) but for the cycles.
std::vector<int> OrderSteps(const std::vector<int>& given,
                            const std::vector<std::pair<int, int>>& edges,
                            std::vector<InPlaceWrite>& writes);

}  // namespace onnx_fp8
