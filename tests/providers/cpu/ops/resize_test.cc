// SPDX-License-Identifier: Apache-2.0
//
// ONNX's own cases cover the semantics; this file has the combinations that
// those leave out, and bad input.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/providers/cpu/run_node.h"

namespace onnx_fp8 {
namespace {

using V = std::vector<double>;

Tensor ByScales(const Tensor& x, const std::vector<float>& scales,
                Attributes attributes) {
  auto n = static_cast<int64_t>(scales.size());
  return RunNode1("Resize", {x, {}, Floats({n}, scales)},
                  std::move(attributes));
}

const char* const kModes[] = {"half_pixel", "half_pixel_symmetric",
                              "pytorch_half_pixel", "align_corners",
                              "asymmetric"};

// Interpolation of any kind keeps a constant, also with weights cut off.
TEST(Resize, KeepsConstants) {
  Tensor x = Floats({1, 5, 7}, std::vector<float>(35, 3));
  for (std::string coordinates : kModes) {
    for (std::string mode : {"nearest", "linear", "cubic"}) {
      for (int64_t antialias : {0, 1}) {
        if (mode == "nearest" && antialias) continue;
        for (int64_t exclude : {0, 1}) {
          Tensor y = ByScales(x, {1, 0.41f, 2.3f},
                              {{"mode", mode},
                               {"coordinate_transformation_mode", coordinates},
                               {"antialias", antialias},
                               {"exclude_outside", exclude}});
          ASSERT_EQ(y.shape(), (Shape{1, 2, 16}));
          for (double value : Doubles(y)) {
            ASSERT_NEAR(value, 3, 1e-5) << coordinates << " " << mode;
          }
        }
      }
    }
  }
}

// The shared scale 1/20 makes axis 1 two elements "1.5 long". With aligned
// corners the second element comes from beyond the end, where all weights are
// cut off.
TEST(Resize, TakesTheEdgeWhereAllIsOutside) {
  Tensor y = RunNode1(
      "Resize", {Count({20, 30}), {}, {}, Tensor::Ints({1, 1})},
      {{"mode", std::string("linear")},
       {"keep_aspect_ratio_policy", std::string("not_smaller")},
       {"coordinate_transformation_mode", std::string("align_corners")},
       {"exclude_outside", int64_t{1}}});
  ASSERT_EQ(y.shape(), (Shape{1, 2}));
  EXPECT_EQ(Doubles(y), (V{0, 29}));
}

// Inside, a line stays a line for any number of axes.
TEST(Resize, LinearIsExactOnLines) {
  Tensor x = Count({3, 4});
  Tensor y = ByScales(x, {1, 2}, {{"mode", std::string("linear")}});
  EXPECT_EQ(Doubles(y), (V{0, 0.25, 0.75, 1.25, 1.75, 2.25,  2.75,  3,
                           4, 4.25, 4.75, 5.25, 5.75, 6.25,  6.75,  7,
                           8, 8.25, 8.75, 9.25, 9.75, 10.25, 10.75, 11}));
  Tensor z = RunNode1(
      "Resize", {x, {}, {}, Tensor::Ints({5, 7})},
      {{"mode", std::string("linear")},
       {"coordinate_transformation_mode", std::string("align_corners")}});
  for (int64_t i = 0; i < 35; ++i) {
    double row = static_cast<double>(i / 7) / 2;
    double column = static_cast<double>(i % 7) / 2;
    ASSERT_NEAR(DoubleAt(z, i), 4 * row + column, 1e-5);
  }
}

TEST(Resize, OtherElements) {
  Tensor x = Tensor::From<uint8_t>({2}, std::vector<uint8_t>{0, 255});
  EXPECT_EQ(Doubles(ByScales(x, {2}, {})), (V{0, 0, 255, 255}));
  EXPECT_EQ(Doubles(ByScales(x, {2}, {{"mode", std::string("linear")}})),
            (V{0, 64, 191, 255}));
  // Cubic overshoots; integers saturate.
  Tensor cubic = ByScales(x, {4}, {{"mode", std::string("cubic")}});
  for (double value : Doubles(cubic)) {
    EXPECT_GE(value, 0);
    EXPECT_LE(value, 255);
  }
  Tensor half = ConvertTo(Floats({2}, {1, 2}), DType::kFloat16);
  EXPECT_EQ(Doubles(ByScales(half, {2}, {{"mode", std::string("linear")}})),
            (V{1, 1.25, 1.75, 2}));
  EXPECT_EQ(Doubles(ByScales(Floats({}, {5}), {}, {})), V{5});
}

TEST(Resize, CropsOutsideAreExtrapolated) {
  Tensor x = Count({4});
  for (std::string mode : {"nearest", "linear", "cubic"}) {
    Tensor y =
        RunNode1("Resize", {x, Floats({2}, {-1, 2}), {}, Tensor::Ints({4})},
                 {{"mode", mode},
                  {"extrapolation_value", 9.0f},
                  {"coordinate_transformation_mode",
                   std::string("tf_crop_and_resize")}});
    EXPECT_EQ(Doubles(y), (V{9, 0, 3, 9})) << mode;
  }
}

TEST(Resize, EmptyAndBadOperands) {
  Tensor x = Count({2, 4});
  EXPECT_EQ(ByScales(x, {0.3f, 1}, {}).shape(), (Shape{0, 4}));
  EXPECT_EQ(ByScales(Count({0, 2}), {2, 2}, {}).shape(), (Shape{0, 4}));
  auto scales = [&](const std::vector<float>& values) {
    return ErrorOf(
        "Resize",
        {x, {}, Floats({static_cast<int64_t>(values.size())}, values)});
  };
  EXPECT_EQ(scales({1, 1}), "");
  EXPECT_NE(scales({1}), "");
  EXPECT_NE(scales({1, 0}), "");
  EXPECT_NE(scales({1, -1}), "");
  EXPECT_NE(scales({1, std::nanf("")}), "");
  EXPECT_NE(scales({1, INFINITY}), "");
  auto sizes = [&](const std::vector<int64_t>& values, Attributes attributes) {
    return ErrorOf("Resize", {x, {}, {}, Tensor::Ints(values)},
                   std::move(attributes));
  };
  EXPECT_NE(sizes({2, -1}, {}), "");
  EXPECT_NE(sizes({2, 4, 1}, {}), "");
  EXPECT_NE(sizes({std::numeric_limits<int64_t>::max(), 4}, {}), "");
  EXPECT_NE(sizes({4}, {{"axes", std::vector<int64_t>{2}}}), "");
  EXPECT_NE(sizes({4, 4}, {{"axes", std::vector<int64_t>{1, 1}}}), "");
  EXPECT_NE(sizes({4, 4}, {{"mode", std::string("area")}}), "");
  EXPECT_NE(sizes({4, 4}, {{"antialias", int64_t{1}}}), "");
  EXPECT_NE(sizes({4, 4}, {{"coordinate_transformation_mode",
                            std::string("tf_crop_and_resize")}}),
            "");
  EXPECT_NE(ErrorOf("Resize", {x}), "");
  EXPECT_NE(
      ErrorOf("Resize", {x, {}, Floats({2}, {1, 1}), Tensor::Ints({2, 4})}),
      "");
  EXPECT_NE(ErrorOf("Resize", {Count({0}), {}, {}, Tensor::Ints({3})}), "");
}

}  // namespace
}  // namespace onnx_fp8
