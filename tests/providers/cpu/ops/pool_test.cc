// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "tests/providers/cpu/ops/spatial.h"
#include "tests/providers/cpu/run_node.h"

namespace onnx_fp8 {
namespace {

struct Pooling {
  Shape x;
  Ints kernel, stride, dilation, pad, pad_end;
  bool ceil_mode;
  Shape y;
};

const Pooling kPoolings[] = {
    {{2, 3, 10}, {3}, {2}, {1}, {1}, {0}, false, {2, 3, 5}},
    {{2, 3, 10}, {3}, {2}, {1}, {1}, {1}, true, {2, 3, 6}},
    // The third window would start in the padding.
    {{1, 1, 4}, {1}, {2}, {1}, {0}, {1}, true, {1, 1, 2}},
    {{2, 2, 7, 9}, {2, 3}, {2, 2}, {1, 1}, {0, 0}, {0, 0}, false, {2, 2, 3, 4}},
    {{2, 2, 7, 8}, {2, 3}, {2, 2}, {1, 1}, {0, 1}, {1, 0}, true, {2, 2, 4, 4}},
    {{2, 2, 7, 9}, {2, 3}, {1, 2}, {3, 2}, {1, 2}, {1, 1}, false, {2, 2, 6, 4}},
    {{1, 2, 4, 5, 6},
     {2, 3, 2},
     {1, 2, 3},
     {2, 1, 1},
     {0, 1, 0},
     {1, 1, 1},
     true,
     {1, 2, 3, 3, 2}},
};

Attributes AttributesOf(const Pooling& t) {
  Ints pads = t.pad;
  pads.insert(pads.end(), t.pad_end.begin(), t.pad_end.end());
  return {{"kernel_shape", t.kernel},
          {"strides", t.stride},
          {"dilations", t.dilation},
          {"pads", pads},
          {"ceil_mode", int64_t{t.ceil_mode}}};
}

// The definition of one output: the elements that it reads, and how many of its
// taps lie in the padded input.
struct Reads {
  Ints offsets;
  int64_t padded = 0;
};

Reads ReadsOf(const Pooling& t, int64_t output) {
  Three in = InThree({t.x.begin() + 2, t.x.end()}, 1);
  Three out = InThree({t.y.begin() + 2, t.y.end()}, 1);
  Three k = InThree(t.kernel, 1), stride = InThree(t.stride, 1);
  Three dilation = InThree(t.dilation, 1), pad = InThree(t.pad, 0);
  Three pad_end = InThree(t.pad_end, 0);
  int64_t plane = output / (out[0] * out[1] * out[2]);
  Three o = {output / (out[1] * out[2]) % out[0], output / out[2] % out[1],
             output % out[2]};
  Reads reads;
  for (int64_t flat = 0; flat < k[0] * k[1] * k[2]; ++flat) {
    Three tap = {flat / (k[1] * k[2]), flat / k[2] % k[1], flat % k[2]};
    int64_t at = plane;
    bool inside = true, padded = true;
    for (size_t d = 0; d < 3; ++d) {
      int64_t i = o[d] * stride[d] + tap[d] * dilation[d] - pad[d];
      inside &= i >= 0 && i < in[d];
      padded &= i < in[d] + pad_end[d];
      at = at * in[d] + i;
    }
    if (inside) reads.offsets.push_back(at);
    reads.padded += padded;
  }
  return reads;
}

// In column-major order: the first spatial axis is the fastest.
int64_t ColumnMajor(const Pooling& t, int64_t offset) {
  Three in = InThree({t.x.begin() + 2, t.x.end()}, 1);
  int64_t size = in[0] * in[1] * in[2], flat = offset % size;
  int64_t i0 = flat / (in[1] * in[2]), i1 = flat / in[2] % in[1];
  return offset - flat + (flat % in[2] * in[1] + i1) * in[0] + i0;
}

TEST(MaxPool, FollowsItsDefinition) {
  for (const Pooling& test : kPoolings) {
    Tensor x = RandomNormal(test.x, 1);
    Attributes attributes = AttributesOf(test);
    auto row = RunNode("MaxPool", {x}, attributes, 2);
    attributes["storage_order"] = int64_t{1};
    auto column = RunNode("MaxPool", {x}, attributes, 2);
    ASSERT_EQ(row[0].shape(), test.y) << ToString(test.x);
    ASSERT_EQ(row[1].shape(), test.y);
    EXPECT_TRUE(Identical(row[0], column[0]));
    for (int64_t i = 0; i < row[0].size(); ++i) {
      Ints offsets = ReadsOf(test, i).offsets;
      int64_t best = *std::max_element(offsets.begin(), offsets.end(),
                                       [&](int64_t a, int64_t b) {
                                         return DoubleAt(x, a) < DoubleAt(x, b);
                                       });
      EXPECT_EQ(DoubleAt(row[0], i), DoubleAt(x, best));
      EXPECT_EQ(IntAt(row[1], i), best);
      EXPECT_EQ(IntAt(column[1], i), ColumnMajor(test, best));
    }
  }
}

TEST(AveragePool, FollowsItsDefinition) {
  for (const Pooling& test : kPoolings) {
    for (bool count_pads : {false, true}) {
      Tensor x = RandomNormal(test.x, 1);
      Attributes attributes = AttributesOf(test);
      attributes["count_include_pad"] = int64_t{count_pads};
      Tensor y = RunNode("AveragePool", {x}, attributes)[0];
      ASSERT_EQ(y.shape(), test.y);
      for (int64_t i = 0; i < y.size(); ++i) {
        Reads reads = ReadsOf(test, i);
        double sum = 0;
        for (int64_t at : reads.offsets) sum += DoubleAt(x, at);
        auto count = static_cast<double>(
            count_pads ? reads.padded : std::ssize(reads.offsets));
        EXPECT_NEAR(DoubleAt(y, i), sum / count, 1e-6) << ToString(test.x);
      }
    }
  }
}

TEST(LpPool, FollowsItsDefinition) {
  for (const Pooling& test : kPoolings) {
    for (int64_t p : {1, 2, 3}) {
      Tensor x = ConvertTo(RandomNormal(test.x, 1), DType::kDouble);
      Attributes attributes = AttributesOf(test);
      attributes["p"] = p;
      Tensor y = RunNode("LpPool", {x}, attributes)[0];
      ASSERT_EQ(y.shape(), test.y);
      for (int64_t i = 0; i < y.size(); ++i) {
        double sum = 0;
        for (int64_t at : ReadsOf(test, i).offsets) {
          sum += std::pow(std::fabs(DoubleAt(x, at)), static_cast<double>(p));
        }
        EXPECT_NEAR(DoubleAt(y, i), std::pow(sum, 1.0 / static_cast<double>(p)),
                    1e-12);
      }
    }
  }
}

TEST(GlobalPool, ReducesEveryPlane) {
  for (const Shape& shape :
       {Shape{2, 3, 5}, Shape{2, 3, 4, 5}, Shape{1, 2, 2, 2, 3}}) {
    Tensor x = RandomNormal(shape, 1);
    Tensor mean = RunNode("GlobalAveragePool", {x})[0];
    Tensor most = RunNode("GlobalMaxPool", {x})[0];
    Shape expected(shape.size(), 1);
    expected[0] = shape[0];
    expected[1] = shape[1];
    ASSERT_EQ(mean.shape(), expected);
    ASSERT_EQ(most.shape(), expected);
    int64_t n = x.size() / mean.size();
    for (int64_t i = 0; i < mean.size(); ++i) {
      double sum = 0, largest = -1e9;
      for (int64_t j = i * n; j < (i + 1) * n; ++j) {
        sum += DoubleAt(x, j);
        largest = std::max(largest, DoubleAt(x, j));
      }
      EXPECT_NEAR(DoubleAt(mean, i), sum / static_cast<double>(n), 1e-7);
      EXPECT_EQ(DoubleAt(most, i), largest);
    }
  }
}

TEST(MaxPool, NaNWinsAndBytesWork) {
  float nan = std::numeric_limits<float>::quiet_NaN();
  Attributes two = {{"kernel_shape", Ints{2}}, {"strides", Ints{2}}};
  Tensor x =
      Tensor::From<float>({1, 1, 6}, std::vector<float>{1, nan, nan, 2, 4, 3});
  auto y = RunNode("MaxPool", {x}, two, 2);
  EXPECT_TRUE(std::isnan(DoubleAt(y[0], 0)));
  EXPECT_TRUE(std::isnan(DoubleAt(y[0], 1)));
  EXPECT_EQ(ToInts(y[1]), (Ints{1, 2, 4}));
  EXPECT_TRUE(std::isnan(DoubleAt(RunNode("GlobalMaxPool", {x})[0], 0)));
  Tensor bytes =
      Tensor::From<int8_t>({1, 1, 4}, std::vector<int8_t>{-3, -9, 5, 7});
  EXPECT_EQ(ToInts(RunNode("MaxPool", {bytes}, two)[0]), (Ints{-3, 7}));
}

TEST(Pool, BadInput) {
  Tensor x = RandomNormal({1, 1, 4, 4}, 1);
  auto run = [&](const char* op, Attributes a) {
    return RunNode(op, {x}, std::move(a))[0].shape();
  };
  for (const char* op : {"MaxPool", "AveragePool", "LpPool"}) {
    EXPECT_EQ(run(op, {{"kernel_shape", Ints{4, 4}}}), (Shape{1, 1, 1, 1}));
    EXPECT_THROW(run(op, {}), Error);
    EXPECT_THROW(run(op, {{"kernel_shape", Ints{2}}}), Error);
    EXPECT_THROW(run(op, {{"kernel_shape", Ints{5, 5}}}), Error);
    EXPECT_THROW(run(op, {{"kernel_shape", Ints{0, 2}}}), Error);
  }
  // A window that sees only padding has no maximum.
  EXPECT_THROW(run("MaxPool",
                   {{"kernel_shape", Ints{1, 1}}, {"pads", Ints{1, 0, 0, 0}}}),
               Error);
  EXPECT_THROW(RunNode("GlobalMaxPool", {RandomNormal({2, 3}, 1)}), Error);
  EXPECT_THROW(RunNode("GlobalAveragePool", {RandomNormal({2, 3, 0}, 1)}),
               Error);
  EXPECT_THROW(
      RunNode("MaxPool", {Tensor::Scalar(1.0f)}, {{"kernel_shape", Ints{1}}}),
      Error);
}

}  // namespace
}  // namespace onnx_fp8
