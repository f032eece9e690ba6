// SPDX-License-Identifier: Apache-2.0
#include "cli/report_page/thin_curve.h"

#include <algorithm>
#include <utility>

namespace onnx_fp8 {

Curve Thinned(const Curve& curve, size_t most) {
  if (curve.size() <= most) return curve;
  const size_t inner = curve.size() - 2;
  const size_t pieces = (most - 2) / 2;
  Curve thin = {curve.front()};
  for (size_t piece = 0; piece < pieces; ++piece) {
    const auto begin = curve.begin() + 1;
    auto [low, high] = std::minmax_element(
        begin + static_cast<std::ptrdiff_t>(piece * inner / pieces),
        begin + static_cast<std::ptrdiff_t>((piece + 1) * inner / pieces),
        [](const CurvePoint& a, const CurvePoint& b) {
          return a.value < b.value;
        });
    if (high < low) std::swap(low, high);
    thin.push_back(*low);
    if (low != high) thin.push_back(*high);
  }
  thin.push_back(curve.back());
  return thin;
}

}  // namespace onnx_fp8
