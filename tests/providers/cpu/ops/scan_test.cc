// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <vector>

#include "base/check.h"
#include "tests/providers/cpu/run_node.h"
#include "tests/providers/cpu/special_values.h"

namespace onnx_fp8 {
namespace {

using Ints64 = std::vector<int64_t>;

Attributes With(std::initializer_list<std::pair<const char*, int64_t>> ints) {
  Attributes attributes;
  for (const auto& [key, value] : ints) attributes.emplace(key, value);
  return attributes;
}

TEST(ArgMax, FirstOrLastAlongAnAxis) {
  Tensor x = Tensor::From<float>({2, 3}, std::vector<float>{2, 7, 7, 3, 1, 3});
  Tensor y = RunNode("ArgMax", {x}, With({{"axis", 1}}))[0];
  EXPECT_EQ(y.shape(), (Shape{2, 1}));
  EXPECT_EQ(ToInts(y), (Ints64{1, 0}));
  y = RunNode("ArgMax", {x}, With({{"axis", -1}, {"select_last_index", 1}}))[0];
  EXPECT_EQ(ToInts(y), (Ints64{2, 2}));
  y = RunNode("ArgMax", {x}, With({{"keepdims", 0}}))[0];
  EXPECT_EQ(y.shape(), (Shape{3}));
  EXPECT_EQ(ToInts(y), (Ints64{1, 0, 0}));
  y = RunNode("ArgMin", {x}, With({{"axis", 1}, {"keepdims", 0}}))[0];
  EXPECT_EQ(ToInts(y), (Ints64{0, 1}));
  Tensor i = Tensor::From<int64_t>({3}, Ints64{(1ll << 60) + 1, 1ll << 60, 0});
  EXPECT_EQ(ToInts(RunNode("ArgMax", {i})[0]), (Ints64{0}));
}

TEST(ArgMax, NaNComesFirst) {
  Tensor x = Tensor::From<float>({4}, std::vector<float>{1, kNaN, 9, kNaN});
  EXPECT_EQ(ToInts(RunNode("ArgMax", {x})[0]), (Ints64{1}));
  EXPECT_EQ(ToInts(RunNode("ArgMin", {x})[0]), (Ints64{1}));
  EXPECT_EQ(ToInts(RunNode("ArgMax", {x}, With({{"select_last_index", 1}}))[0]),
            (Ints64{3}));
}

TEST(ArgMax, RefusesAnEmptyAxis) {
  Tensor x = Tensor::Zeros(DType::kFloat, {2, 0});
  EXPECT_THROW(RunNode("ArgMax", {x}, With({{"axis", 1}})), Error);
  EXPECT_EQ(RunNode("ArgMax", {x})[0].shape(), (Shape{1, 0}));
  EXPECT_THROW(RunNode("ArgMax", {x}, With({{"axis", 2}})), Error);
  EXPECT_THROW(RunNode("ArgMax", {Tensor::Scalar(1.0f)}), Error);
}

TEST(CumSum, BothAxesBothWays) {
  Tensor x =
      Tensor::From<double>({2, 3}, std::vector<double>{1, 2, 3, 4, 5, 6});
  auto sums = [&](int64_t axis, Attributes attributes) {
    Tensor y = RunNode("CumSum", {x, Tensor::Scalar(axis)}, attributes)[0];
    auto values = y.values<double>();
    return std::vector<double>(values.begin(), values.end());
  };
  using Doubles = std::vector<double>;
  EXPECT_EQ(sums(0, {}), (Doubles{1, 2, 3, 5, 7, 9}));
  EXPECT_EQ(sums(-1, {}), (Doubles{1, 3, 6, 4, 9, 15}));
  EXPECT_EQ(sums(1, With({{"exclusive", 1}})), (Doubles{0, 1, 3, 0, 4, 9}));
  EXPECT_EQ(sums(1, With({{"reverse", 1}})), (Doubles{6, 5, 3, 15, 11, 6}));
  EXPECT_EQ(sums(1, With({{"reverse", 1}, {"exclusive", 1}})),
            (Doubles{5, 3, 0, 11, 6, 0}));
}

TEST(CumSum, ManyColumnsAndIntegers) {
  Tensor x = Tensor::Allocate(DType::kInt32, {5, 700});
  for (int64_t i = 0; i < x.size(); ++i) {
    x.data<int32_t>()[i] = static_cast<int32_t>(i % 700);
  }
  Tensor y = RunNode("CumSum", {x, Tensor::Ints({0})})[0];
  for (int64_t i = 0; i < y.size(); ++i) {
    ASSERT_EQ(IntAt(y, i), (i / 700 + 1) * (i % 700));
  }
  EXPECT_THROW(RunNode("CumSum", {x, Tensor::Ints({0, 1})}), Error);
  EXPECT_THROW(RunNode("CumSum", {x, Tensor::Ints({2})}), Error);
}

}  // namespace
}  // namespace onnx_fp8
