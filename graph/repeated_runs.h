// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

namespace onnx_fp8 {

// Items begin … begin + length - 1 repeat with this period.
struct RepeatedRun {
  size_t begin = 0, length = 0, period = 0;
  size_t end() const { return begin + length; }
};

// Runs of two or more equal blocks, one after another, in a row of items that
// have labels: first the longest one (of equally long ones, the one with the
// shortest period), then the longest ones beside it. `counts`: whether items
// [begin, end) may be a block. The runs come in the order of the items.
std::vector<RepeatedRun> FindRepeatedRuns(
    const std::vector<int>& labels,
    const std::function<bool(size_t begin, size_t end)>& counts);

}  // namespace onnx_fp8
