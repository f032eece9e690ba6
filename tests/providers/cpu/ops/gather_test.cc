// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "base/parallel.h"
#include "base/random.h"
#include "tests/providers/cpu/run_node.h"

namespace onnx_fp8 {
namespace {

using Int64s = std::vector<int64_t>;

Tensor RandomFloats(const Shape& shape, uint64_t seed) {
  Tensor x = Tensor::Allocate(DType::kFloat, shape);
  for (int64_t i = 0; i < x.size(); ++i) {
    x.data<float>()[i] = RandomUniform(seed, static_cast<uint64_t>(i)) - 0.5f;
  }
  return x;
}

// -size … size-1
Tensor RandomIndices(const Shape& shape, int64_t size, uint64_t seed) {
  Tensor x = Tensor::Allocate(DType::kInt64, shape);
  for (int64_t i = 0; i < x.size(); ++i) {
    x.data<int64_t>()[i] =
        static_cast<int64_t>(RandomBelow(seed, static_cast<uint64_t>(i),
                                         2 * static_cast<uint64_t>(size))) -
        size;
  }
  return x;
}

TEST(Gather, RowsOnSeveralThreads) {
  Tensor x = RandomFloats({3, 40, 50}, 1),
         indices = RandomIndices({7, 30}, 40, 2);
  Tensor y = RunNode1("Gather", {x, indices}, {{"axis", int64_t{-2}}});
  ASSERT_EQ(y.shape(), (Shape{3, 7, 30, 50}));
  for (int64_t i = 0; i < y.size(); ++i) {
    int64_t o = i / (210 * 50), n = i / 50 % 210, j = i % 50;
    int64_t row = (indices.data<int64_t>()[n] + 40) % 40;
    ASSERT_EQ(y.data<float>()[i], x.data<float>()[(o * 40 + row) * 50 + j]);
  }
}

TEST(Gather, ScalarsBytesAndEmpty) {
  Tensor x = Tensor::From<uint8_t>({3}, std::vector<uint8_t>{5, 6, 7});
  Tensor y = RunNode1("Gather", {x, Tensor::Scalar(int32_t{-1})});
  EXPECT_EQ(y.shape(), Shape{});
  EXPECT_EQ(IntAt(y, 0), 7);
  EXPECT_EQ(
      RunNode1("Gather", {Count({2, 0}), Tensor::Ints({1, 1, 1})}).shape(),
      (Shape{3, 0}));
  EXPECT_EQ(RunNode1("Gather", {Count({0, 2}), Tensor::Ints({})}).shape(),
            (Shape{0, 2}));
}

TEST(Gather, RefusesBadOperands) {
  Tensor x = Count({3, 2});
  for (int64_t bad : {int64_t{3}, int64_t{-4}, INT64_MAX, INT64_MIN}) {
    Tensor index = Tensor::Ints({0, bad});
    EXPECT_NE(ErrorOf("Gather", {x, index}), "") << bad;
    EXPECT_NE(ErrorOf("GatherElements", {x, index.Reshaped({2, 1})}), "");
    EXPECT_NE(ErrorOf("GatherND", {x, index.Reshaped({2, 1})}), "");
  }
  EXPECT_EQ(ErrorOf("Gather", {x, Tensor::Ints({3})}),
            "[Gather n] expected indices in -3…2, got 3");
  EXPECT_NE(ErrorOf("Gather", {x, Floats({1}, {0})}), "");
  EXPECT_NE(ErrorOf("Gather", {x, Tensor::Ints({0})}, {{"axis", int64_t{2}}}),
            "");
  EXPECT_NE(ErrorOf("Gather", {Floats({}, {1}), Tensor::Ints({0})}), "");
  EXPECT_NE(ErrorOf("Gather", {Count({0}), Tensor::Ints({0})}), "");
}

TEST(GatherElements, RefusesShapesOutside) {
  Tensor x = Count({3, 2});
  EXPECT_NE(ErrorOf("GatherElements", {x, Tensor::Ints({0, 0})}), "");
  EXPECT_NE(
      ErrorOf("GatherElements", {x, Tensor::Ints({0, 0, 0}).Reshaped({1, 3})}),
      "");
  EXPECT_EQ(Doubles(RunNode1("GatherElements",
                             {x, Tensor::Ints({1, 0, -1}).Reshaped({1, 3})},
                             {{"axis", int64_t{1}}})),
            (std::vector<double>{1, 0, 1}));
}

TEST(GatherND, RefusesShapesThatDoNotFit) {
  Tensor x = Count({2, 3});
  EXPECT_NE(ErrorOf("GatherND", {x, Tensor::Ints({0, 0, 0})}), "");
  EXPECT_NE(ErrorOf("GatherND", {x, Tensor::Scalar(int64_t{0})}), "");
  EXPECT_NE(ErrorOf("GatherND", {x, Tensor::Ints({0, 0, 0}).Reshaped({3, 1})},
                    {{"batch_dims", int64_t{1}}}),
            "");
  EXPECT_NE(ErrorOf("GatherND", {x, Tensor::Ints({0, 0}).Reshaped({2, 1})},
                    {{"batch_dims", int64_t{2}}}),
            "");
  EXPECT_EQ(
      RunNode1("GatherND", {x, Tensor::Ints({}).Reshaped({0, 2})}).shape(),
      Shape{0});
}

Tensor GatherGrad(const Tensor& dy, const Tensor& indices, int64_t axis,
                  const Shape& shape) {
  return RunNode1("GatherGrad", {dy, indices},
                  {{"axis", axis}, {"shape", shape}}, kDomain);
}

// By definition: dx[o, indices[n], i] += dy[o, n, i], in order.
Tensor ExpectedGrad(const Tensor& dy, const Tensor& indices, int64_t outer,
                    int64_t size, int64_t inner, const Shape& shape) {
  Tensor dx = Tensor::Zeros(DType::kFloat, shape);
  int64_t n = indices.size();
  for (int64_t i = 0; i < dy.size(); ++i) {
    int64_t o = i / (n * inner), row = IntAt(indices, i / inner % n);
    row = (row + size) % size;
    dx.data<float>()[(o * size + row) * inner + i % inner] +=
        dy.data<float>()[i];
  }
  EXPECT_EQ(outer * size * inner, dx.size());
  return dx;
}

TEST(GatherGrad, AddsRepeatedRowsTheSameOnAnyNumberOfThreads) {
  int threads = NumThreads();
  Tensor indices = RandomIndices({20, 25}, 30, 3);
  Tensor dy0 = RandomFloats({20, 25, 64}, 4);
  Tensor dy1 = RandomFloats({4, 20, 25, 9}, 5);
  for (int n : {1, 2, 5}) {
    SetNumThreads(n);
    EXPECT_TRUE(Identical(GatherGrad(dy0, indices, 0, {30, 64}),
                          ExpectedGrad(dy0, indices, 1, 30, 64, {30, 64})));
    EXPECT_TRUE(Identical(GatherGrad(dy1, indices, -2, {4, 30, 9}),
                          ExpectedGrad(dy1, indices, 4, 30, 9, {4, 30, 9})));
  }
  SetNumThreads(threads);
}

TEST(GatherGrad, IsTheAdjointOfGather) {
  Tensor x = RandomFloats({5, 11, 3}, 6), indices = RandomIndices({8}, 11, 7);
  Tensor y = RunNode1("Gather", {x, indices}, {{"axis", int64_t{1}}});
  Tensor dy = RandomFloats(y.shape(), 8);
  Tensor dx = GatherGrad(dy, indices, 1, x.shape());
  double left = 0, right = 0;
  for (int64_t i = 0; i < y.size(); ++i)
    left += DoubleAt(y, i) * DoubleAt(dy, i);
  for (int64_t i = 0; i < x.size(); ++i)
    right += DoubleAt(x, i) * DoubleAt(dx, i);
  EXPECT_NEAR(left, right, 1e-6);
}

TEST(GatherGrad, SumsSmallFloatsInFloat) {
  // 512 ones: a running bfloat16 sum would stop at 256.
  std::vector<float> ones(512, 1);
  Tensor dy = ConvertTo(Floats({512, 1}, ones), DType::kBFloat16);
  Tensor indices = Tensor::Ints(Int64s(512, 0));
  Tensor dx = GatherGrad(dy, indices, 0, {2, 1});
  EXPECT_EQ(dx.dtype(), DType::kBFloat16);
  EXPECT_EQ(Doubles(dx), (std::vector<double>{512, 0}));
}

TEST(GatherGrad, EmptyAndBadOperands) {
  EXPECT_EQ(Doubles(GatherGrad(Count({0, 2}), Tensor::Ints({}), 0, {2, 2})),
            (std::vector<double>{0, 0, 0, 0}));
  auto error = [](const Tensor& dy, const Tensor& indices, int64_t axis,
                  const Shape& shape) {
    return ErrorOf("GatherGrad", {dy, indices},
                   {{"axis", axis}, {"shape", shape}}, 1, kDomain);
  };
  Tensor dy = Count({2, 3});
  EXPECT_NE(error(dy, Tensor::Ints({0, 5}), 0, {5, 3}), "");
  EXPECT_NE(error(dy, Tensor::Ints({0, -6}), 0, {5, 3}), "");
  EXPECT_NE(error(dy, Tensor::Ints({0, 1}), 0, {5, 4}), "");
  EXPECT_NE(error(dy, Tensor::Ints({0, 1}), 2, {5, 3}), "");
  EXPECT_NE(error(dy, Tensor::Ints({0, 1}), 0, {}), "");
  EXPECT_NE(error(dy, Tensor::Ints({0, 1}), 0, {-5, 3}), "");
  EXPECT_NE(error(dy, Floats({2}, {0, 1}), 0, {5, 3}), "");
}

}  // namespace
}  // namespace onnx_fp8
