// SPDX-License-Identifier: Apache-2.0
//
// ONNX's own cases cover the semantics; this file has places far outside and
// bad input.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/providers/cpu/run_node.h"

namespace onnx_fp8 {
namespace {

using V = std::vector<double>;

V Sample(const Tensor& x, const Tensor& grid, const std::string& mode,
         const std::string& padding, int64_t align_corners = 0) {
  return Doubles(RunNode1("GridSample", {x, grid},
                          {{"mode", mode},
                           {"padding_mode", padding},
                           {"align_corners", align_corners}}));
}

TEST(GridSample, FarOutsideAndNowhere) {
  Tensor x = Floats({1, 1, 2}, {3, 5});
  Tensor grid = Floats({1, 4, 1}, {-1e30f, 1e30f, INFINITY, std::nanf("")});
  for (std::string mode : {"nearest", "linear", "cubic"}) {
    for (int64_t align_corners : {0, 1}) {
      EXPECT_EQ(Sample(x, grid, mode, "zeros", align_corners)[1], 0) << mode;
      EXPECT_EQ(Sample(x, grid, mode, "border", align_corners)[0], 3) << mode;
      EXPECT_EQ(Sample(x, grid, mode, "border", align_corners)[1], 5) << mode;
      for (double value : Sample(x, grid, mode, "reflection", align_corners)) {
        EXPECT_TRUE(value >= 2 && value <= 6) << mode << " " << value;
      }
    }
  }
}

// There is only a single element to reflect.
TEST(GridSample, OneElement) {
  Tensor x = Floats({1, 2, 1, 1}, {3, 4}), grid = Floats({1, 1, 1, 2}, {5, -7});
  for (int64_t align_corners : {0, 1}) {
    EXPECT_EQ(Sample(x, grid, "linear", "reflection", align_corners),
              (V{3, 4}));
  }
}

TEST(GridSample, SmallFloatsAndEmpty) {
  Tensor x = ConvertTo(Floats({1, 1, 2}, {1, 2}), DType::kBFloat16);
  EXPECT_EQ(Sample(x, Floats({1, 1, 1}, {0}), "linear", "zeros"), V{1.5});
  EXPECT_EQ(Sample(x, Floats({1, 0, 1}, {}), "linear", "zeros"), V{});
}

TEST(GridSample, RefusesBadOperands) {
  Tensor x = Count({1, 1, 2, 2}), grid = Count({1, 1, 1, 2});
  EXPECT_EQ(ErrorOf("GridSample", {x, grid}), "");
  EXPECT_NE(ErrorOf("GridSample", {x, Count({1, 1, 1, 3})}), "");
  EXPECT_NE(ErrorOf("GridSample", {x, Count({2, 1, 1, 2})}), "");
  EXPECT_NE(ErrorOf("GridSample", {x, Count({1, 1, 2})}), "");
  EXPECT_NE(ErrorOf("GridSample", {Count({1, 1}), Count({1, 0})}), "");
  EXPECT_NE(ErrorOf("GridSample", {Count({1, 1, 0, 2}), grid}), "");
  EXPECT_NE(ErrorOf("GridSample", {x, grid}, {{"mode", std::string("area")}}),
            "");
  EXPECT_NE(
      ErrorOf("GridSample", {x, grid}, {{"padding_mode", std::string("wrap")}}),
      "");
}

}  // namespace
}  // namespace onnx_fp8
