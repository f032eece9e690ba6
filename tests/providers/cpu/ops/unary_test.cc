// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/check.h"
#include "onnx_fp8/float8.h"
#include "providers/cpu/cpu_provider.h"
#include "tests/providers/cpu/run_node.h"
#include "tests/providers/cpu/special_values.h"

namespace onnx_fp8 {
namespace {

double Reciprocal(double x) { return 1 / x; }
double Negative(double x) { return -x; }

struct MathFunction {
  const char* op;
  double (*reference)(double);
  double low, high;
};
const MathFunction kMathFunctions[] = {
    {"Neg", &Negative, -3, 3},         {"Abs", &std::fabs, -3, 3},
    {"Sqrt", &std::sqrt, 0, 9},        {"Reciprocal", &Reciprocal, 0.1, 9},
    {"Exp", &std::exp, -5, 5},         {"Log", &std::log, 0.01, 20},
    {"Erf", &std::erf, -4, 4},         {"Sin", &std::sin, -9, 9},
    {"Cos", &std::cos, -9, 9},         {"Tan", &std::tan, -1.5, 1.5},
    {"Asin", &std::asin, -1, 1},       {"Acos", &std::acos, -1, 1},
    {"Atan", &std::atan, -9, 9},       {"Sinh", &std::sinh, -4, 4},
    {"Cosh", &std::cosh, -4, 4},       {"Asinh", &std::asinh, -9, 9},
    {"Acosh", &std::acosh, 1, 9},      {"Atanh", &std::atanh, -0.99, 0.99},
    {"Floor", &std::floor, -3, 3},     {"Ceil", &std::ceil, -3, 3},
    {"Round", &std::nearbyint, -3, 3},
};

TEST(Unary, FloatAndDouble) {
  // More elements than one task gets.
  const int n = 40000;
  for (const MathFunction& c : kMathFunctions) {
    std::vector<double> x(n);
    for (int i = 0; i < n; ++i) {
      x[static_cast<size_t>(i)] = c.low + (c.high - c.low) * i / (n - 1);
    }
    Tensor d = Vector(x);
    Tensor f = ConvertTo(d, DType::kFloat);
    Tensor y = RunNode(c.op, {d})[0];
    Tensor z = RunNode(c.op, {f})[0];
    ASSERT_EQ(y.dtype(), DType::kDouble);
    ASSERT_EQ(z.dtype(), DType::kFloat);
    for (int i = 0; i < n; ++i) {
      ASSERT_EQ(DoubleAt(y, i), c.reference(DoubleAt(d, i))) << c.op;
      double want = c.reference(DoubleAt(f, i));
      ASSERT_NEAR(DoubleAt(z, i), want, 2.4e-7 * std::fabs(want)) << c.op;
    }
  }
}

TEST(Unary, RoundsTiesToEven) {
  Tensor x = Vector<float>({0.5f, 1.5f, 2.5f, -0.5f, -1.5f, 0.4999f});
  EXPECT_TRUE(Identical(RunNode("Round", {x})[0],
                        Vector<float>({0, 2, 2, -0.0f, -2, 0})));
}

TEST(Unary, IntegersWrap) {
  Tensor x = Vector<int8_t>({-128, -1, 0, 5});
  EXPECT_EQ(ToInts(RunNode("Neg", {x})[0]),
            (std::vector<int64_t>{-128, 1, 0, -5}));
  EXPECT_EQ(ToInts(RunNode("Abs", {x})[0]),
            (std::vector<int64_t>{-128, 1, 0, 5}));
  EXPECT_EQ(ToInts(RunNode("Sign", {x})[0]),
            (std::vector<int64_t>{-1, -1, 0, 1}));
  EXPECT_EQ(ToInts(RunNode("Sign", {Vector<uint8_t>({0, 200})})[0]),
            (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(ToInts(RunNode("BitwiseNot", {Vector<int16_t>({0, -1, 5})})[0]),
            (std::vector<int64_t>{-1, 0, -6}));
}

TEST(Unary, Predicates) {
  Tensor x = Vector<float>({1, kNaN, kInfinity, -kInfinity});
  EXPECT_EQ(ToInts(RunNode("IsNaN", {x})[0]),
            (std::vector<int64_t>{0, 1, 0, 0}));
  EXPECT_EQ(ToInts(RunNode("IsInf", {x})[0]),
            (std::vector<int64_t>{0, 0, 1, 1}));
  EXPECT_EQ(ToInts(RunNode("IsInf", {x}, {{"detect_negative", int64_t{0}}})[0]),
            (std::vector<int64_t>{0, 0, 1, 0}));
  EXPECT_EQ(ToInts(RunNode("IsInf", {x}, {{"detect_positive", int64_t{0}}})[0]),
            (std::vector<int64_t>{0, 0, 0, 1}));
  Tensor e = Vector<E5M2>({EncodeE5M2(1), E5M2{0x7F}, E5M2{0x7C}, E5M2{0xFC}});
  EXPECT_EQ(ToInts(RunNode("IsNaN", {e})[0]),
            (std::vector<int64_t>{0, 1, 0, 0}));
  EXPECT_EQ(ToInts(RunNode("IsInf", {e})[0]),
            (std::vector<int64_t>{0, 0, 1, 1}));
}

TEST(Unary, NotTakesAnyByteForTrue) {
  Tensor x = Tensor::Allocate(DType::kBool, {3});
  static_cast<uint8_t*>(x.raw())[0] = 0;
  static_cast<uint8_t*>(x.raw())[1] = 1;
  static_cast<uint8_t*>(x.raw())[2] = 7;
  EXPECT_EQ(ToInts(RunNode("Not", {x})[0]), (std::vector<int64_t>{1, 0, 0}));
}

TEST(Unary, HalfPrecisionComputesInFloat) {
  Tensor x = ConvertTo(Vector<float>({0.25f, 2, 9}), DType::kBFloat16);
  Tensor want =
      ConvertTo(Vector<float>({0.5f, 1.4142135f, 3}), DType::kBFloat16);
  EXPECT_TRUE(Identical(RunNode("Sqrt", {x})[0], want));
}

TEST(Unary, SpecialValues) {
  Tensor x = Vector<float>({kNaN, kInfinity, -kInfinity, -0.0f});
  Tensor sign = RunNode("Sign", {x})[0];
  EXPECT_TRUE(std::isnan(DoubleAt(sign, 0)));
  EXPECT_EQ(DoubleAt(sign, 2), -1);
  EXPECT_EQ(DoubleAt(RunNode("Reciprocal", {x})[0], 3), -kInfinity);
  EXPECT_FALSE(std::signbit(DoubleAt(RunNode("Abs", {x})[0], 3)));
}

TEST(Unary, RefusesOtherDTypesAndMissingOperands) {
  EXPECT_THROW(RunNode("Exp", {Vector<int32_t>({1})}), Error);
  EXPECT_THROW(RunNode("Neg", {Tensor::Zeros(DType::kBool, {1})}), Error);
  EXPECT_THROW(RunNode("Not", {Vector<float>({1})}), Error);
  EXPECT_THROW(RunNode("BitwiseNot", {Vector<float>({1})}), Error);
  EXPECT_THROW(RunNode("Exp", {}), Error);
}

TEST(Unary, IdentityIsAView) {
  EXPECT_TRUE(CpuKernels().Find("", "Identity")->traits.view);
  Tensor x = Vector<int16_t>({3, 4});
  EXPECT_TRUE(Identical(RunNode("Identity", {x})[0], x));
  EXPECT_EQ(RunNode("Exp", {Tensor::Zeros(DType::kFloat, {0, 3})})[0].shape(),
            (Shape{0, 3}));
}

}  // namespace
}  // namespace onnx_fp8
