// SPDX-License-Identifier: Apache-2.0
#include "cli/report_page/heat_map.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace onnx_fp8 {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNone = std::numeric_limits<float>::quiet_NaN();

// Steps 10, 20, …: 30 dB and no share, but at one step.
CastRow RowWithOneBadStep(int64_t steps, int64_t bad) {
  CastRow row;
  for (int64_t i = 1; i <= steps; ++i) {
    const bool is_bad = 10 * i == bad;
    row.samples.push_back(
        {10 * i, is_bad ? 3.0F : 30.0F, is_bad ? 0.5F : 0.0F, 0.25F});
  }
  return row;
}

TEST(HeatMapTest, FewStepsAreColumnsOfTheirOwn) {
  StepColumns columns = ColumnsOf({RowWithOneBadStep(3, 20)}, 200);
  EXPECT_EQ(columns.first, (std::vector<int64_t>{10, 20, 30}));
  EXPECT_EQ(columns.last, columns.first);
  EXPECT_EQ(columns.measured, 3);
}

TEST(HeatMapTest, ColumnsCoverEachStepOnce) {
  CastRow other;
  other.samples = {{5, 1, 0, 0}, {10, 1, 0, 0}};
  const StepColumns columns =
      ColumnsOf({RowWithOneBadStep(1000, 0), other}, 200);
  ASSERT_EQ(columns.size(), 200);
  EXPECT_EQ(columns.measured, 1001);
  EXPECT_EQ(columns.first.front(), 5);
  EXPECT_EQ(columns.last.back(), 10000);
  for (size_t i = 0; i < columns.size(); ++i) {
    EXPECT_LE(columns.first[i], columns.last[i]);
    const int64_t before = i > 0 ? columns.last[i - 1] : 0;
    EXPECT_EQ(columns.first[i], i > 0 ? before + 10 : 5);
    EXPECT_EQ(columns.Of(columns.first[i]), i);
    EXPECT_EQ(columns.Of(columns.last[i]), i);
  }
}

// Wherever the bad step is, its column shows it, and no other column does.
TEST(HeatMapTest, TheWorstNumberOfAColumnStays) {
  for (int64_t bad = 10; bad <= 7770; bad += 10) {
    const CastRow row = RowWithOneBadStep(777, bad);
    const StepColumns columns = ColumnsOf({row}, 50);
    const auto sqnr = WorstOf(row, columns, &CastSample::sqnr, WorstIs::kLeast);
    const auto share =
        WorstOf(row, columns, &CastSample::saturated, WorstIs::kLargest);
    for (size_t i = 0; i < columns.size(); ++i) {
      const bool has = columns.first[i] <= bad && bad <= columns.last[i];
      ASSERT_EQ(sqnr[i], has ? 3.0F : 30.0F) << bad << " " << i;
      ASSERT_EQ(share[i], has ? 0.5F : 0.0F) << bad << " " << i;
    }
  }
}

TEST(HeatMapTest, ExactCastsAreNotTheWorstAndNothingIsNone) {
  CastRow row;
  row.samples = {{1, kInf, kNone, 0}, {2, 12, kNone, 0}, {3, kInf, kNone, 0}};
  const StepColumns one = ColumnsOf({row}, 1);
  EXPECT_EQ(WorstOf(row, one, &CastSample::sqnr, WorstIs::kLeast)[0], 12);
  EXPECT_TRUE(std::isnan(
      WorstOf(row, one, &CastSample::saturated, WorstIs::kLargest)[0]));
  const StepColumns three = ColumnsOf({row}, 3);
  EXPECT_EQ(WorstOf(row, three, &CastSample::sqnr, WorstIs::kLeast)[2], kInf);
  EXPECT_EQ(ColumnsOf({}, 200).size(), 0);
}

// The texts are those of Python's base64.urlsafe_b64encode for
// (code << 12).to_bytes(3), without its last two letters.
TEST(HeatMapTest, Codes) {
  EXPECT_EQ(DecibelCodes({kNone, -150, 0, 31.44F, 250, kInf}), "AAABXdcX-h__");
  EXPECT_EQ(DecibelCodes({-1e9F, 1e9F}), "AB-h");
  EXPECT_EQ(ShareCodes({kNone, 0, 1e-10F, 1e-4F, 1}), "AAABACli-i");
  EXPECT_EQ(ShareCodes({1e-20F, 7}), "AC-i");
}

}  // namespace
}  // namespace onnx_fp8
