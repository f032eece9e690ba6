// SPDX-License-Identifier: Apache-2.0
#include "cli/report_page/thin_curve.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace onnx_fp8 {
namespace {

Curve FlatCurve(int64_t points) {
  Curve curve;
  for (int64_t i = 1; i <= points; ++i) curve.push_back({i, 1});
  return curve;
}

bool HasPoint(const Curve& curve, int64_t step, double value) {
  return std::ranges::any_of(curve, [&](const CurvePoint& point) {
    return point.step == step && point.value == value;
  });
}

TEST(ThinCurveTest, ShortCurvesStay) {
  EXPECT_EQ(Thinned({}, 4).size(), 0);
  EXPECT_EQ(Thinned(FlatCurve(100), 100).size(), 100);
}

TEST(ThinCurveTest, ExtremesAndEndsStay) {
  for (int64_t place = 1; place + 1 <= 1009; ++place) {
    Curve curve = FlatCurve(1009);
    curve[static_cast<size_t>(place - 1)].value = 90;
    curve[static_cast<size_t>(place)].value = -90;
    const Curve thin = Thinned(curve, 60);
    ASSERT_LE(thin.size(), 60);
    ASSERT_TRUE(HasPoint(thin, place, 90)) << place;
    ASSERT_TRUE(HasPoint(thin, place + 1, -90)) << place;
    EXPECT_EQ(thin.front().step, 1);
    EXPECT_EQ(thin.back().step, 1009);
    EXPECT_TRUE(std::ranges::is_sorted(thin, {}, &CurvePoint::step));
  }
}

}  // namespace
}  // namespace onnx_fp8
