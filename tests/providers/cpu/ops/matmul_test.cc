// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "base/check.h"
#include "tests/providers/cpu/run_node.h"

namespace onnx_fp8 {
namespace {

Tensor Product(const Tensor& a, const Tensor& b) {
  return RunNode("MatMul", {a, b})[0];
}

// NumPy's matmul by its definition, in double.
Tensor Reference(const Tensor& a0, const Tensor& b0) {
  Tensor a = a0.rank() > 1 ? a0 : a0.Reshaped({1, a0.size()});
  Tensor b = b0.rank() > 1 ? b0 : b0.Reshaped({b0.size(), 1});
  int64_t m = a.dim(-2), k = a.dim(-1), n = b.dim(-1);
  Shape a_lead(a.shape().begin(), a.shape().end() - 2);
  Shape b_lead(b.shape().begin(), b.shape().end() - 2);
  Shape lead = BroadcastShapes(a_lead, b_lead, "test");
  auto offset = [&](const Shape& own, int64_t flat) {
    auto strides = Strides(own);
    int64_t at = 0;
    for (size_t d = 0; d < own.size(); ++d) {
      size_t axis = own.size() - 1 - d;
      int64_t size = lead[lead.size() - 1 - d];
      if (own[axis] != 1) at += flat % size * strides[axis];
      flat /= size;
    }
    return at;
  };
  Shape shape = lead;
  if (a0.rank() > 1) shape.push_back(m);
  if (b0.rank() > 1) shape.push_back(n);
  Tensor y = Tensor::Zeros(DType::kDouble, shape);
  for (int64_t i = 0; i < y.size(); ++i) {
    int64_t flat = i / (m * n), row = i / n % m, column = i % n;
    int64_t a_at = (offset(a_lead, flat) * m + row) * k;
    int64_t b_at = offset(b_lead, flat) * k * n + column;
    for (int64_t l = 0; l < k; ++l) {
      y.data<double>()[i] += DoubleAt(a, a_at + l) * DoubleAt(b, b_at + l * n);
    }
  }
  return y;
}

TEST(MatMul, NumPyShapes) {
  const std::pair<Shape, Shape> kCases[] = {{{4}, {4}},
                                            {{4}, {4, 3}},
                                            {{2, 4}, {4}},
                                            {{2, 4}, {4, 3}},
                                            {{5, 2, 4}, {4, 3}},
                                            {{4}, {5, 4, 3}},
                                            {{5, 2, 4}, {4}},
                                            {{2, 4}, {5, 4, 3}},
                                            {{5, 2, 4}, {5, 4, 3}},
                                            {{1, 2, 4}, {5, 4, 3}},
                                            {{6, 1, 2, 4}, {5, 4, 3}},
                                            {{5, 2, 4}, {1, 1, 4, 3}},
                                            {{6, 5, 2, 4}, {6, 1, 4, 3}},
                                            {{0, 2, 4}, {4, 3}},
                                            {{2, 0}, {0, 3}},
                                            {{3, 2, 0}, {3, 0, 2}}};
  for (const auto& [a_shape, b_shape] : kCases) {
    Tensor a = RandomNormal(a_shape, 1), b = RandomNormal(b_shape, 2);
    Tensor y = Product(a, b);
    Tensor expected = Reference(a, b);
    EXPECT_LT(LargestDifference(y, expected), 1e-5) << ToString(a_shape);
    Tensor a8 = ConvertTo(a, DType::kDouble), b8 = ConvertTo(b, DType::kDouble);
    EXPECT_LT(LargestDifference(Product(a8, b8), expected), 1e-14);
    for (DType t : {DType::kInt32, DType::kInt64, DType::kUInt8}) {
      Tensor ai = ConvertTo(a, t), bi = ConvertTo(b, t);
      Tensor yi = Product(ai, bi);
      EXPECT_EQ(yi.dtype(), t);
      EXPECT_EQ(LargestDifference(yi, Reference(ai, bi)), 0);
    }
  }
}

TEST(MatMul, IntegersWrapAround) {
  Tensor a = Tensor::From<int32_t>({1, 1}, std::vector<int32_t>{1 << 30});
  Tensor b = Tensor::From<int32_t>({1, 1}, std::vector<int32_t>{6});
  EXPECT_EQ(IntAt(Product(a, b), 0), int64_t{-2147483648});
}

TEST(MatMul, RefusesOperandsThatDoNotFit) {
  auto x = [](Shape s) { return Tensor::Zeros(DType::kFloat, std::move(s)); };
  EXPECT_THROW(Product(x({2, 3}), x({4, 5})), Error);
  EXPECT_THROW(Product(x({}), x({4, 5})), Error);
  EXPECT_THROW(Product(x({2, 2, 3}), x({3, 3, 5})), Error);
  EXPECT_THROW(Product(x({2, 3}), Tensor::Zeros(DType::kDouble, {3, 5})),
               Error);
  EXPECT_THROW(Product(Tensor::Zeros(DType::kBool, {2, 2}),
                       Tensor::Zeros(DType::kBool, {2, 2})),
               Error);
  // Nothing to compute, but huge sizes.
  int64_t big = int64_t{1} << 30;
  Tensor y = Product(x({big, big, 0}), x({0, 0}));
  EXPECT_EQ(y.size(), 0);
}

TEST(GemmOp, AllAttributesAndBiasShapes) {
  for (int64_t ta : {0, 1}) {
    for (int64_t tb : {0, 1}) {
      for (const Shape& shape : {Shape{}, Shape{1}, Shape{5}, Shape{1, 5},
                                 Shape{3, 1}, Shape{3, 5}}) {
        Tensor a = RandomNormal(ta ? Shape{4, 3} : Shape{3, 4}, 1);
        Tensor b = RandomNormal(tb ? Shape{5, 4} : Shape{4, 5}, 2);
        Tensor c = RandomNormal(shape, 3);
        for (float beta : {1.0f, -0.5f, 0.0f}) {
          Tensor y = RunNode("Gemm", {a, b, c},
                             {{"alpha", 0.5f},
                              {"beta", beta},
                              {"transA", ta},
                              {"transB", tb}})[0];
          for (int64_t i = 0; i < 15; ++i) {
            int64_t row = i / 5, column = i % 5;
            double sum = 0;
            for (int64_t l = 0; l < 4; ++l) {
              sum += DoubleAt(a, ta ? l * 3 + row : row * 4 + l) *
                     DoubleAt(b, tb ? column * 4 + l : l * 5 + column);
            }
            int64_t at = 0;
            if (!shape.empty() && shape.back() == 5) at += column;
            if (shape.size() == 2 && shape[0] == 3) at += row * shape[1];
            EXPECT_NEAR(DoubleAt(y, i), 0.5 * sum + beta * DoubleAt(c, at),
                        1e-6);
          }
        }
      }
    }
  }
}

TEST(GemmOp, DefaultsAndErrors) {
  Tensor a = RandomNormal({2, 3}, 1), b = RandomNormal({3, 4}, 2);
  Tensor y = RunNode("Gemm", {a, b})[0];
  EXPECT_LT(LargestDifference(y, Reference(a, b)), 1e-6);
  EXPECT_THROW(RunNode("Gemm", {a, a}), Error);
  EXPECT_THROW(RunNode("Gemm", {a, b, RandomNormal({3}, 1)}), Error);
  EXPECT_THROW(RunNode("Gemm", {a, b, RandomNormal({1, 2, 4}, 1)}), Error);
  EXPECT_THROW(RunNode("Gemm", {a, b.Reshaped({1, 3, 4})}), Error);
}

}  // namespace
}  // namespace onnx_fp8
