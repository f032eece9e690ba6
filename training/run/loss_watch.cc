// SPDX-License-Identifier: Apache-2.0
#include "training/run/loss_watch.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace onnx_fp8 {
namespace {

constexpr size_t kFewest = 8, kMost = 32;

// The lower one of two.
double MedianOf(const std::deque<double>& numbers) {
  std::vector<double> sorted(numbers.begin(), numbers.end());
  const auto middle =
      sorted.begin() + static_cast<std::ptrdiff_t>((sorted.size() - 1) / 2);
  std::ranges::nth_element(sorted, middle);
  return *middle;
}

}  // namespace

double LossWatch::Jumped(double loss) {
  if (factor_ <= 0 || !std::isfinite(loss)) return 0;
  const double median = last_.size() < kFewest ? 0 : MedianOf(last_);
  last_.push_back(loss);
  if (last_.size() > kMost) last_.pop_front();
  return median > 0 && loss > factor_ * median ? median : 0;
}

}  // namespace onnx_fp8
