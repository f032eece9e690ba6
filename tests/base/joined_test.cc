// SPDX-License-Identifier: Apache-2.0
#include "base/joined.h"

#include <gtest/gtest.h>

namespace onnx_fp8 {
namespace {

TEST(JoinedTest, EndsWhereItGetsLong) {
  EXPECT_EQ(Joined({"a", "b", "c"}), "a, b, c");
  EXPECT_EQ(Joined({"a", "b", "c"}, 2), "a, b, …");
  EXPECT_EQ(Joined({}), "");
}

}  // namespace
}  // namespace onnx_fp8
