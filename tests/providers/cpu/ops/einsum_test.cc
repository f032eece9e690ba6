// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/providers/cpu/run_node.h"

namespace onnx_fp8 {
namespace {

using V = std::vector<double>;

Tensor Einsum(const std::string& equation, const std::vector<Tensor>& x) {
  return RunNode1("Einsum", x, {{"equation", equation}});
}

TEST(Einsum, MatrixProducts) {
  Tensor a = Count({2, 3}), b = Count({3, 2});
  V expected = {10, 13, 28, 40};
  EXPECT_EQ(Doubles(Einsum("ij,jk->ik", {a, b})), expected);
  EXPECT_EQ(Doubles(Einsum(" i j , j k ", {a, b})), expected);
  EXPECT_EQ(Doubles(Einsum("...ij,...jk->...ik", {a, b})), expected);
  // Without output: alphabetical, so the transpose of the product.
  EXPECT_EQ(Doubles(Einsum("zj,ja", {a, b})), (V{10, 28, 13, 40}));
  EXPECT_EQ(Doubles(Einsum("ij,jk->", {a, b})), V{91});
}

TEST(Einsum, DiagonalsSumsAndOuterProducts) {
  Tensor a = Count({2, 2});
  EXPECT_EQ(Doubles(Einsum("ii", {a})), V{3});
  EXPECT_EQ(Doubles(Einsum("ii->i", {a})), (V{0, 3}));
  EXPECT_EQ(Doubles(Einsum("ij->j", {a})), (V{2, 4}));
  EXPECT_EQ(
      Doubles(Einsum("i,j->ij", {Floats({2}, {1, 2}), Floats({2}, {3, 4})})),
      (V{3, 4, 6, 8}));
  EXPECT_EQ(Doubles(Einsum("ij,jk,kl->il", {a, a, a})), (V{6, 11, 22, 39}));
  EXPECT_EQ(Doubles(Einsum(",->", {Floats({}, {3}), Floats({}, {4})})), V{12});
}

TEST(Einsum, EllipsesBroadcast) {
  Tensor a = Count({2, 1, 3}), b = Count({4, 3});
  Tensor y = Einsum("...i,...i->...", {a, b});
  ASSERT_EQ(y.shape(), (Shape{2, 4}));
  for (int64_t n = 0; n < 2; ++n) {
    for (int64_t m = 0; m < 4; ++m) {
      double sum = 0;
      for (int64_t i = 0; i < 3; ++i) {
        sum += static_cast<double>((n * 3 + i) * (m * 3 + i));
      }
      EXPECT_EQ(DoubleAt(y, n * 4 + m), sum);
    }
  }
  // Axes under an ellipsis that the result omits are summed.
  EXPECT_EQ(Doubles(Einsum("...i->i", {Count({2, 2})})), (V{2, 4}));
  EXPECT_EQ(Doubles(Einsum("i...", {Count({2, 2})})), (V{0, 2, 1, 3}));
}

// Whole numbers, so small that no sum here needs rounding.
Tensor Small(const Shape& shape) {
  Tensor x = Count(shape);
  for (int64_t i = 0; i < x.size(); ++i) {
    x.data<float>()[i] = static_cast<float>(i * i % 13 - 6);
  }
  return x;
}

// Attention's products, compared with loops, in sizes that several threads
// share.
TEST(Einsum, BatchedHeads) {
  int64_t b = 2, q = 33, k = 29, h = 3, d = 17;
  Tensor x = Small({b, q, h, d}), w = Small({b, k, h, d});
  Tensor y = Einsum("bqhd,bkhd->bhqk", {x, w});
  ASSERT_EQ(y.shape(), (Shape{b, h, q, k}));
  for (int64_t i = 0; i < y.size(); ++i) {
    int64_t n = i / (h * q * k), c = i / (q * k) % h, r = i / k % q;
    int64_t s = i % k;
    double sum = 0;
    for (int64_t j = 0; j < d; ++j) {
      sum += DoubleAt(x, ((n * q + r) * h + c) * d + j) *
             DoubleAt(w, ((n * k + s) * h + c) * d + j);
    }
    ASSERT_EQ(DoubleAt(y, i), sum);
  }
}

// Two operands go through matrix products; three operands do not.
TEST(Einsum, BothWaysAgree) {
  Tensor a = Small({2, 3, 4, 5}), one = Floats({}, {1});
  for (auto [equation, shape] : std::vector<std::pair<std::string, Shape>>{
           {"abcd,abcd->ba", {2, 3, 4, 5}},
           {"abcd,dbea->ecb", {5, 3, 6, 2}},
           {"abcd,ce->eabd", {4, 6}},
           {"abcd,ebcf->fade", {6, 3, 4, 2}},
           {"abcd,dc->ab", {5, 4}},
           {"abcd,aed->bc", {2, 6, 5}},
           {"abcd,abcd->abcd", {2, 1, 4, 5}},
           {"abcd,bb->acd", {3, 3}},
           {"...cd,...ed->...ce", {3, 6, 5}},
           {"abcd,e->", {7}}}) {
    Tensor b = Small(shape);
    size_t arrow = equation.find("->");
    std::string three =
        equation.substr(0, arrow) + "," + equation.substr(arrow);
    EXPECT_TRUE(Identical(Einsum(equation, {a, b}), Einsum(three, {a, b, one})))
        << equation;
    Tensor wide_a = ConvertTo(a, DType::kDouble);
    Tensor wide_b = ConvertTo(b, DType::kDouble);
    EXPECT_EQ(Doubles(Einsum(equation, {wide_a, wide_b})),
              Doubles(Einsum(three, {a, b, one})))
        << equation;
  }
}

TEST(Einsum, OtherElementsAndEmpty) {
  Tensor i = Tensor::Ints({1L << 62, 1L << 62, 1L << 62, 1L << 62});
  EXPECT_EQ(IntAt(Einsum("i->", {i}), 0), 0);  // wraps around
  Tensor h = ConvertTo(Floats({2}, {3, 4}), DType::kBFloat16);
  Tensor y = Einsum("i,i->", {h, h});
  EXPECT_EQ(y.dtype(), DType::kBFloat16);
  EXPECT_EQ(Doubles(y), V{25});
  EXPECT_EQ(Doubles(Einsum("ij,jk->ik", {Count({2, 0}), Count({0, 1})})),
            (V{0, 0}));
  EXPECT_EQ(Einsum("ij,jk->ik", {Count({0, 2}), Count({2, 3})}).shape(),
            (Shape{0, 3}));
}

TEST(Einsum, RefusesBadEquations) {
  Tensor a = Count({2, 3});
  for (const char* equation :
       {"", "ij,jk", "i", "ijk", "ij->k", "ij->ii", "i1", "i..", "...i...j",
        ".ij", "ij->i->j", "ijk...", "ii", "ij-"}) {
    EXPECT_NE(ErrorOf("Einsum", {a}, {{"equation", std::string(equation)}}), "")
        << equation;
  }
  EXPECT_NE(ErrorOf("Einsum", {a, a}, {{"equation", std::string("ij,jk")}}),
            "");
  EXPECT_NE(ErrorOf("Einsum", {a, Tensor::Ints({1, 2, 3})},
                    {{"equation", std::string("ij,j")}}),
            "");
}

}  // namespace
}  // namespace onnx_fp8
