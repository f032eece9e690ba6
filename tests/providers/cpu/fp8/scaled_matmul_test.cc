// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "base/check.h"
#include "onnx_fp8/float8.h"
#include "tests/providers/cpu/fp8/quantization.h"
#include "tests/providers/cpu/run_node.h"

namespace onnx_fp8 {
namespace {

struct Tensorwise {
  Tensor q, scale;
};

Tensorwise Quantize(const Tensor& x, DType format) {
  auto out = RunNode("QuantizeTensor", {x}, QuantizeTo(format), 3, kDomain);
  return {out[0], out[1]};
}

Tensor Product(const Tensorwise& a, const Tensorwise& b, int64_t ta, int64_t tb,
               const Tensor& bias = {}) {
  std::vector<Tensor> in = {a.q, a.scale, b.q, b.scale};
  if (bias.defined()) in.push_back(bias);
  return RunNode(bias.defined() ? "ScaledMatMulBias" : "ScaledMatMul", in,
                 {{"transA", ta}, {"transB", tb}, {"role", "dgrad"}}, 1,
                 kDomain)[0];
}

// The decoded codes as a matrix: all axes but the last are joined.
Tensor DecodedMatrix(const Tensorwise& x) {
  int64_t rows = 1;
  for (int64_t axis = 0; axis < x.q.rank() - 1; ++axis) rows *= x.q.dim(axis);
  return ConvertTo(x.q, DType::kFloat).Reshaped({rows, x.q.dim(-1)});
}

struct Case {
  Shape a, b;
  int64_t ta, tb;
  Shape y;
};

const Case kCases[] = {
    {{3, 5}, {5, 7}, 0, 0, {3, 7}},
    {{2, 3, 17}, {17, 33}, 0, 0, {2, 3, 33}},
    {{2, 3, 4, 17}, {33, 17}, 0, 1, {2, 3, 4, 33}},
    {{2, 3, 17}, {2, 3, 9}, 1, 0, {17, 9}},
    {{6, 17}, {2, 3, 9}, 1, 0, {17, 9}},
    {{2, 3, 17}, {9, 6}, 1, 1, {17, 9}},
    {{0, 3, 5}, {5, 7}, 0, 0, {0, 3, 7}},
    {{2, 3, 0}, {0, 7}, 0, 0, {2, 3, 7}},
    {{0, 3, 5}, {0, 3, 7}, 1, 0, {5, 7}},
};

TEST(ScaledMatMul, EqualsTheProductOfTheDecodedOperands) {
  for (const Case& test : kCases) {
    for (DType format : {DType::kE4M3, DType::kE5M2}) {
      Tensorwise a = Quantize(RandomNormal(test.a, 1), format);
      Tensorwise b = Quantize(RandomNormal(test.b, 2), DType::kE4M3);
      Tensor bias = RandomNormal({test.y.back()}, 3);
      Tensor y = Product(a, b, test.ta, test.tb);
      Tensor z = Product(a, b, test.ta, test.tb, bias);
      ASSERT_EQ(y.shape(), test.y);
      ASSERT_EQ(z.shape(), test.y);
      Tensor addend = RandomNormal(test.y, 4);
      Tensor added =
          RunNode("ScaledMatMulAdd", {a.q, a.scale, b.q, b.scale, addend},
                  {{"transA", test.ta}, {"transB", test.tb}}, 1, kDomain)[0];
      EXPECT_TRUE(Identical(added, RunNode1("Add", {addend, y})));
      Tensor sum = RunNode("Gemm", {DecodedMatrix(a), DecodedMatrix(b)},
                           {{"transA", test.ta}, {"transB", test.tb}})[0];
      float scale = *a.scale.data<float>() * *b.scale.data<float>();
      for (int64_t i = 0; i < y.size(); ++i) {
        float expected = sum.data<float>()[i] * scale;
        EXPECT_EQ(y.data<float>()[i], expected);
        EXPECT_EQ(z.data<float>()[i],
                  expected + bias.data<float>()[i % bias.size()]);
      }
    }
  }
}

double Decibels(const Tensor& exact, const Tensor& x) {
  double signal = 0, noise = 0;
  for (int64_t i = 0; i < x.size(); ++i) {
    double v = DoubleAt(exact, i), d = DoubleAt(x, i) - v;
    signal += v * v;
    noise += d * d;
  }
  return 10 * std::log10(signal / noise);
}

// A linear layer's three products. More signal than this would mean that
// something was not quantized.
TEST(ScaledMatMul, KeepsTheSignalOfALinearLayer) {
  int64_t m = 256, k = 192, n = 128;
  Tensor x = RandomNormal({m, k}, 1), w = RandomNormal({k, n}, 2);
  Tensor dy = RandomNormal({m, n}, 3);
  auto exact = [](const Tensor& a, const Tensor& b, int64_t ta, int64_t tb) {
    return RunNode("Gemm", {a, b}, {{"transA", ta}, {"transB", tb}})[0];
  };
  Tensorwise xq = Quantize(x, DType::kE4M3), wq = Quantize(w, DType::kE4M3);
  Tensorwise dq = Quantize(dy, DType::kE5M2);
  double forward = Decibels(exact(x, w, 0, 0), Product(xq, wq, 0, 0));
  double dgrad = Decibels(exact(dy, w, 0, 1), Product(dq, wq, 0, 1));
  double wgrad = Decibels(exact(x, dy, 1, 0), Product(xq, dq, 1, 0));
  EXPECT_GE(forward, 27);
  EXPECT_LE(forward, 34);
  for (double d : {dgrad, wgrad}) {
    EXPECT_GE(d, 22);
    EXPECT_LE(d, 34);
  }
}

TEST(ScaledMatMul, RefusesWhatDoesNotFit) {
  Tensorwise a = Quantize(RandomNormal({3, 5}, 1), DType::kE4M3);
  Tensorwise b = Quantize(RandomNormal({5, 7}, 1), DType::kE4M3);
  EXPECT_THROW(Product(a, b, 1, 0), Error);
  EXPECT_THROW(Product(a, b, 0, 1), Error);
  EXPECT_THROW(Product(a, b, 0, 0, RandomNormal({3}, 1)), Error);
  EXPECT_EQ(
      ErrorOf("ScaledMatMulAdd",
              {a.q, a.scale, b.q, b.scale, RandomNormal({7}, 1)},
              {{"transA", int64_t{0}}, {"transB", int64_t{0}}}, 1, kDomain),
      "[onnx_fp8.ScaledMatMulAdd n] expected addend float[3,7], got "
      "float[7]");
  Tensorwise row = {a.q.Reshaped({15}), a.scale};
  EXPECT_THROW(Product(row, b, 0, 0), Error);
  Tensorwise high = {ConvertTo(a.q, DType::kFloat), a.scale};
  EXPECT_THROW(Product(high, b, 0, 0), Error);
  Tensorwise vector = {a.q, RandomNormal({2}, 1)};
  EXPECT_THROW(Product(vector, b, 0, 0), Error);
}

}  // namespace
}  // namespace onnx_fp8
