// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "base/check.h"
#include "providers/cpu/ops/conv_planes.h"
#include "tests/providers/cpu/ops/spatial.h"
#include "tests/providers/cpu/run_node.h"

namespace onnx_fp8 {
namespace {

Ints Spatial(const Tensor& t) {
  return {t.shape().begin() + 2, t.shape().end()};
}

struct Setting {
  Ints stride, dilation, pad, pad_end;
  int64_t group = 1;

  Attributes ToAttributes() const {
    Ints pads = pad;
    pads.insert(pads.end(), pad_end.begin(), pad_end.end());
    return {{"strides", stride},
            {"dilations", dilation},
            {"pads", pads},
            {"group", group}};
  }
};

// Calls fn(x offset, w offset, y offset) for every product of the convolution
// from x to y by its definition.
template <typename Fn>
void ForEachProduct(const Tensor& x, const Tensor& w, const Tensor& y,
                    const Setting& s, Fn fn) {
  auto in = InThree(Spatial(x), 1), k = InThree(Spatial(w), 1);
  auto out = InThree(Spatial(y), 1), stride = InThree(s.stride, 1);
  auto dilation = InThree(s.dilation, 1), pad = InThree(s.pad, 0);
  auto product = [](const auto& a) { return a[0] * a[1] * a[2]; };
  int64_t cg = w.dim(1), mg = w.dim(0) / s.group;
  auto position = [&](int64_t flat, const auto& sizes) {
    return std::array<int64_t, 3>{flat / (sizes[1] * sizes[2]),
                                  flat / sizes[2] % sizes[1], flat % sizes[2]};
  };
  for (int64_t n = 0; n < x.dim(0); ++n) {
    for (int64_t m = 0; m < w.dim(0); ++m) {
      for (int64_t c = 0; c < cg; ++c) {
        for (int64_t o = 0; o < product(out); ++o) {
          for (int64_t t = 0; t < product(k); ++t) {
            auto op = position(o, out), tp = position(t, k);
            int64_t at = 0;
            bool inside = true;
            for (size_t d = 0; d < 3; ++d) {
              int64_t i = op[d] * stride[d] + tp[d] * dilation[d] - pad[d];
              inside &= i >= 0 && i < in[d];
              at = at * in[d] + i;
            }
            if (!inside) continue;
            int64_t plane = n * x.dim(1) + m / mg * cg + c;
            fn(plane * product(in) + at, (m * cg + c) * product(k) + t,
               (n * w.dim(0) + m) * product(out) + o);
          }
        }
      }
    }
  }
}

struct Convolution {
  Shape x, w, y;
  Setting s;
};

const Convolution kConvolutions[] = {
    {{2, 3, 9}, {4, 3, 3}, {2, 4, 9}, {{1}, {1}, {1}, {1}}},
    {{2, 3, 11}, {4, 3, 3}, {2, 4, 3}, {{3}, {2}, {0}, {2}}},
    {{2, 4, 7, 6},
     {6, 4, 1, 1},
     {2, 6, 7, 6},
     {{1, 1}, {1, 1}, {0, 0}, {0, 0}}},
    {{2, 4, 7, 6},
     {6, 4, 1, 1},
     {2, 6, 4, 2},
     {{2, 3}, {1, 1}, {0, 0}, {0, 0}}},
    {{2, 4, 7, 6},
     {6, 4, 3, 2},
     {2, 6, 6, 9},
     {{1, 1}, {2, 1}, {1, 3}, {2, 1}}},
    {{2, 4, 9, 8},
     {6, 2, 3, 3},
     {2, 6, 5, 4},
     {{2, 2}, {1, 1}, {1, 1}, {1, 1}, 2}},
    {{2, 4, 9, 8},
     {4, 1, 3, 3},
     {2, 4, 9, 8},
     {{1, 1}, {1, 1}, {1, 1}, {1, 1}, 4}},
    {{2, 4, 9, 8},
     {8, 1, 3, 2},
     {2, 8, 5, 5},
     {{2, 2}, {1, 2}, {1, 1}, {1, 2}, 4}},
    {{1, 1, 9, 8},
     {9, 1, 3, 3},
     {1, 9, 7, 6},
     {{1, 1}, {1, 1}, {0, 0}, {0, 0}}},
    {{2, 2, 4, 5, 6},
     {3, 2, 2, 3, 2},
     {2, 3, 5, 3, 4},
     {{1, 2, 2}, {1, 1, 1}, {1, 1, 2}, {1, 1, 0}}},
    // One result of several channels, in many groups and images.
    {{8, 6, 7, 6},
     {2, 3, 3, 2},
     {8, 2, 5, 6},
     {{1, 1}, {1, 1}, {0, 1}, {0, 0}, 2}},
    // More padding than input.
    {{1, 1, 9}, {1, 1, 2}, {1, 1, 9}, {{1}, {30000}, {30000}, {0}}},
    // Single planes in three axes, cropped and strided.
    {{2, 3, 5, 6, 7},
     {3, 1, 2, 3, 2},
     {2, 3, 4, 3, 7},
     {{1, 2, 1}, {1, 1, 2}, {0, 1, 2}, {0, 0, 0}, 3}},
    {{2, 4, 9, 40},
     {4, 1, 3, 5},
     {2, 4, 6, 35},
     {{1, 1}, {1, 1}, {-1, 1}, {0, -2}, 4}},
    // Negative pads crop; a stride beyond the kernel leaves inputs unread.
    {{1, 2, 9, 9},
     {2, 2, 2, 2},
     {1, 2, 2, 2},
     {{4, 4}, {1, 1}, {-1, -2}, {0, -1}}},
    // Few positions in many images, which are multiplied together.
    {{150, 6, 9, 8},
     {4, 3, 8, 7},
     {150, 4, 4, 4},
     {{1, 1}, {1, 1}, {1, 1}, {1, 1}, 2}},
    // One window as large as the input, and one that is larger.
    {{5, 4, 7, 6},
     {6, 2, 7, 6},
     {5, 6, 1, 1},
     {{1, 1}, {1, 1}, {0, 0}, {0, 0}, 2}},
    {{5, 2, 3, 3},
     {3, 2, 3, 3},
     {5, 3, 1, 1},
     {{1, 1}, {2, 2}, {0, 0}, {2, 2}}},
    // More positions than one chunk.
    {{1, 9, 70, 70},
     {5, 9, 3, 3},
     {1, 5, 70, 70},
     {{1, 1}, {1, 1}, {1, 1}, {1, 1}}},
};

TEST(Conv, FollowsItsDefinition) {
  for (const Convolution& test : kConvolutions) {
    Tensor x = RandomNormal(test.x, 1), w = RandomNormal(test.w, 2);
    Tensor b = RandomNormal({test.w[0]}, 3);
    Tensor expected = Tensor::Zeros(DType::kDouble, test.y);
    int64_t plane = expected.size() / (test.y[0] * test.y[1]);
    for (int64_t i = 0; i < expected.size(); ++i) {
      expected.data<double>()[i] = DoubleAt(b, i / plane % test.w[0]);
    }
    ForEachProduct(
        x, w, expected, test.s, [&](int64_t xi, int64_t wi, int64_t yi) {
          expected.data<double>()[yi] += DoubleAt(x, xi) * DoubleAt(w, wi);
        });
    Tensor y = RunNode("Conv", {x, w, b}, test.s.ToAttributes())[0];
    ASSERT_EQ(y.shape(), test.y) << ToString(test.x) << ToString(test.w);
    EXPECT_LT(LargestDifference(y, expected), 2e-5) << ToString(test.x);
    auto d = [](const Tensor& t) { return ConvertTo(t, DType::kDouble); };
    y = RunNode("Conv", {d(x), d(w), d(b)}, test.s.ToAttributes())[0];
    EXPECT_LT(LargestDifference(y, expected), 1e-13) << ToString(test.x);
  }
}

TEST(ConvTranspose, IsTheAdjoint) {
  for (const Convolution& test : kConvolutions) {
    // dy (N,M,…) and the weight (M,C/g,…) give dx (N,C,…).
    Tensor dy = RandomNormal(test.y, 1), w = RandomNormal(test.w, 2);
    Tensor b = RandomNormal({test.x[1]}, 3);
    Tensor expected = Tensor::Zeros(DType::kDouble, test.x);
    int64_t plane = expected.size() / (test.x[0] * test.x[1]);
    for (int64_t i = 0; i < expected.size(); ++i) {
      expected.data<double>()[i] = DoubleAt(b, i / plane % test.x[1]);
    }
    ForEachProduct(
        expected, w, dy, test.s, [&](int64_t xi, int64_t wi, int64_t yi) {
          expected.data<double>()[xi] += DoubleAt(dy, yi) * DoubleAt(w, wi);
        });
    // The elements that the convolution's stride left unread at the end.
    Attributes attributes = test.s.ToAttributes();
    Ints extra;
    for (size_t i = 2; i < test.x.size(); ++i) {
      const Setting& s = test.s;
      extra.push_back(test.x[i] + s.pad[i - 2] + s.pad_end[i - 2] -
                      (test.w[i] - 1) * s.dilation[i - 2] - 1 -
                      (test.y[i] - 1) * s.stride[i - 2]);
    }
    attributes["output_padding"] = extra;
    Tensor dx = RunNode("ConvTranspose", {dy, w, b}, attributes)[0];
    ASSERT_EQ(dx.shape(), test.x);
    EXPECT_LT(LargestDifference(dx, expected), 2e-5) << ToString(test.x);
    auto d = [](const Tensor& t) { return ConvertTo(t, DType::kDouble); };
    dx = RunNode("ConvTranspose", {d(dy), d(w), d(b)}, attributes)[0];
    EXPECT_LT(LargestDifference(dx, expected), 1e-13) << ToString(test.x);
  }
}

TEST(Conv, AutoPad) {
  Tensor x = RandomNormal({1, 1, 8, 8}, 1), w = RandomNormal({1, 1, 4, 4}, 2);
  auto run = [&](const std::string& mode, Ints pads) {
    Attributes attributes = {{"strides", Ints{2, 2}}};
    if (mode.empty()) {
      attributes["pads"] = std::move(pads);
    } else {
      attributes["auto_pad"] = mode;
    }
    return RunNode("Conv", {x, w}, attributes)[0];
  };
  Tensor same = run("SAME_UPPER", {});
  EXPECT_EQ(same.shape(), (Shape{1, 1, 4, 4}));
  EXPECT_TRUE(Identical(same, run("", {1, 1, 1, 1})));
  EXPECT_TRUE(Identical(run("VALID", {}), run("", {0, 0, 0, 0})));
  x = RandomNormal({1, 1, 7, 7}, 1);  // 3 of padding
  EXPECT_TRUE(Identical(run("SAME_UPPER", {}), run("", {1, 1, 2, 2})));
  EXPECT_TRUE(Identical(run("SAME_LOWER", {}), run("", {2, 2, 1, 1})));
  EXPECT_THROW(run("SAME", {}), Error);
}

TEST(ConvPlanes, FitWithLittlePaddingAndFewIdleSums) {
  Window w = {.in = {1, 9, 8}, .kernel = {1, 3, 3}, .out = {1, 9, 8}};
  w.pad = w.pad_end = {0, 1, 1};
  EXPECT_TRUE(FitsPlanes(w));
  Window wide = {.in = {1, 1, 9}, .kernel = {1, 1, 2}, .out = {1, 1, 9}};
  wide.dilation = wide.pad = {0, 0, 30000};
  EXPECT_FALSE(FitsPlanes(wide));
  // 9 results, whose lines are 224 sums apart.
  Window idle = {.in = {1, 224, 224}, .kernel = {1, 222, 222}};
  idle.out = {1, 3, 3};
  EXPECT_FALSE(FitsPlanes(idle));
}

// The result has 10^5 elements. Plane by plane, this convolution would need a
// buffer of 10^10.
TEST(ConvTranspose, WideDilation) {
  Tensor x = RandomNormal({1, 1, 1, 1}, 1), w = RandomNormal({1, 1, 1, 2}, 2);
  Tensor y = RunNode("ConvTranspose", {x, w},
                     {{"dilations", Ints{1, 100000}},
                      {"output_padding", Ints{100000, 0}},
                      {"pads", Ints{0, 50000, 0, 50000}}})[0];
  EXPECT_EQ(y.shape(), (Shape{1, 1, 100001, 1}));
  EXPECT_EQ(y.data<float>()[0], 0);
}

TEST(ConvTranspose, SizeOfTheResult) {
  Tensor x = RandomNormal({1, 2, 3, 3}, 1), w = RandomNormal({2, 1, 4, 4}, 2);
  auto run = [&](Attributes attributes) {
    attributes["strides"] = Ints{2, 2};
    return RunNode("ConvTranspose", {x, w}, attributes)[0];
  };
  EXPECT_EQ(run({}).shape(), (Shape{1, 1, 8, 8}));
  EXPECT_EQ(run({{"auto_pad", "SAME_UPPER"}}).shape(), (Shape{1, 1, 6, 6}));
  Tensor cropped = run({{"output_shape", Ints{7, 7}}});
  EXPECT_TRUE(Identical(cropped, run({{"pads", Ints{1, 1, 0, 0}}})));
  cropped = run({{"output_shape", Ints{7, 7}}, {"auto_pad", "SAME_UPPER"}});
  EXPECT_TRUE(Identical(cropped, run({{"pads", Ints{0, 0, 1, 1}}})));
  Tensor larger = run({{"output_shape", Ints{9, 8}}});
  EXPECT_TRUE(Identical(larger, run({{"output_padding", Ints{1, 0}}})));
}

TEST(Conv, EmptyBatchesAndBadInput) {
  auto x = [](Shape s) { return Tensor::Zeros(DType::kFloat, std::move(s)); };
  Tensor w = x({4, 2, 3, 3});
  auto run = [](const std::vector<Tensor>& in, Attributes a = {}) {
    return RunNode("Conv", in, std::move(a))[0].shape();
  };
  EXPECT_EQ(run({x({0, 2, 5, 5}), w}), (Shape{0, 4, 3, 3}));
  EXPECT_EQ(run({x({1, 0, 5, 5}), x({4, 0, 3, 3})}), (Shape{1, 4, 3, 3}));
  // Only the bias is left.
  Tensor bias = Tensor::Scalar(5.0f).Reshaped({1});
  Tensor y = RunNode("Conv", {x({16, 0, 4, 4}), x({1, 0, 3, 3}), bias})[0];
  for (int64_t i = 0; i < y.size(); ++i) EXPECT_EQ(y.data<float>()[i], 5);
  EXPECT_THROW(run({x({1, 2, 2, 2}), w}), Error);
  EXPECT_THROW(run({x({1, 3, 5, 5}), w}), Error);
  EXPECT_THROW(run({x({2, 5, 5}), w}), Error);
  EXPECT_THROW(run({x({1, 2, 5, 5}), w, x({3})}), Error);
  EXPECT_THROW(run({x({1, 2, 5, 5}), x({4, 2, 0, 3})}), Error);
  EXPECT_THROW(run({x({1, 2, 5, 5}), ConvertTo(w, DType::kDouble)}), Error);
  EXPECT_THROW(run({x({1, 2, 1, 1, 1, 1}), x({1, 2, 1, 1, 1, 1})}), Error);
  for (const Attributes& bad :
       std::vector<Attributes>{{{"strides", Ints{0, 1}}},
                               {{"strides", Ints{1}}},
                               {{"dilations", Ints{1, -1}}},
                               {{"pads", Ints{1, 1}}},
                               {{"pads", Ints{int64_t{1} << 62, 1, 1, 1}}},
                               {{"kernel_shape", Ints{2, 2}}},
                               {{"group", int64_t{3}}},
                               {{"group", int64_t{0}}},
                               {{"group", int64_t{2}}}}) {
    EXPECT_THROW(run({x({1, 2, 5, 5}), w}, bad), Error) << bad.begin()->first;
  }
  EXPECT_THROW(RunNode("ConvTranspose", {x({1, 3, 5, 5}), w}), Error);
  EXPECT_THROW(RunNode("ConvTranspose", {x({1, 4, 1, 1}), w},
                       {{"pads", Ints{2, 2, 2, 2}}}),
               Error);
}

}  // namespace
}  // namespace onnx_fp8
