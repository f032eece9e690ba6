// SPDX-License-Identifier: Apache-2.0
#include "cli/feeds.h"

#include <gtest/gtest.h>

#include "base/check.h"

namespace onnx_fp8 {
namespace {

TEST(FeedAsTest, ConvertsOnlyWithoutLoss) {
  Tensor small = Tensor::From<int64_t>({2}, {1, 200});
  EXPECT_EQ(FeedAs(small, DType::kUInt8, "x").dtype(), DType::kUInt8);
  EXPECT_THROW(FeedAs(small, DType::kInt8, "x"), Error);
  EXPECT_EQ(DoubleAt(FeedAs(small, DType::kFloat, "x"), 1), 200);
  Tensor real = Tensor::From<float>({1}, {1});
  EXPECT_THROW(FeedAs(real, DType::kInt64, "x"), Error);
  EXPECT_EQ(FeedAs(real, DType::kDouble, "x").dtype(), DType::kDouble);
}

}  // namespace
}  // namespace onnx_fp8
