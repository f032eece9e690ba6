// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/random.h"
#include "providers/cpu/cpu_provider.h"
#include "providers/kernel.h"
#include "tests/providers/cpu/run_node.h"
#include "tests/providers/cpu/special_values.h"

namespace onnx_fp8 {
namespace {

double Cdf(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }
double Softplus(double x) {
  return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x));
}
double TanhGelu(double x) {
  return 0.5 * x *
         (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

// The formulas of ONNX's operator descriptions.
struct Formula {
  std::string op;
  Attributes attributes;
  double (*reference)(double);
};
const Formula kFormulas[] = {
    {"Relu", {}, [](double x) { return std::fmax(x, 0); }},
    {"LeakyRelu", {}, [](double x) { return x < 0 ? double{0.01f} * x : x; }},
    {"LeakyRelu",
     {{"alpha", 0.5f}},
     [](double x) { return x < 0 ? 0.5 * x : x; }},
    {"ThresholdedRelu", {}, [](double x) { return x > 1 ? x : 0; }},
    {"HardSigmoid",
     {},
     [](double x) {
       return std::fmax(0, std::fmin(1, double{0.2f} * x + 0.5));
     }},
    {"HardSwish",
     {},
     [](double x) { return x * std::fmax(0, std::fmin(1, x / 6 + 0.5)); }},
    {"Shrink", {}, [](double x) { return std::fabs(x) > 0.5 ? x : 0; }},
    {"Shrink",
     {{"bias", 1.5f}, {"lambd", 2.0f}},
     [](double x) { return x < -2  ? x + 1.5
                           : x > 2 ? x - 1.5
                                   : 0; }},
    {"Elu", {}, [](double x) { return x > 0 ? x : std::expm1(x); }},
    {"Elu",
     {{"alpha", 2.0f}},
     [](double x) { return x > 0 ? x : 2 * std::expm1(x); }},
    {"Selu",
     {},
     [](double x) {
       return double{1.0507009873554805f} *
              (x > 0 ? x : double{1.6732632423543772f} * std::expm1(x));
     }},
    {"Celu",
     {{"alpha", 2.0f}},
     [](double x) {
       return std::fmax(0, x) + std::fmin(0, 2 * std::expm1(x / 2));
     }},
    {"Sigmoid", {}, [](double x) { return 1 / (1 + std::exp(-x)); }},
    {"Tanh", {}, [](double x) { return std::tanh(x); }},
    {"Swish", {}, [](double x) { return x / (1 + std::exp(-x)); }},
    {"Swish",
     {{"alpha", 0.5f}},
     [](double x) { return x / (1 + std::exp(-0.5 * x)); }},
    {"Softplus", {}, &Softplus},
    {"Softsign", {}, [](double x) { return x / (1 + std::fabs(x)); }},
    {"Mish", {}, [](double x) { return x * std::tanh(Softplus(x)); }},
    {"Gelu", {}, [](double x) { return x * Cdf(x); }},
    {"Gelu", {{"approximate", std::string("tanh")}}, &TanhGelu},
};

TEST(Activation, FollowsTheFormulasInFloatAndDouble) {
  const int n = 40001;  // more than one task; holds 0
  std::vector<double> x(n);
  for (int i = 0; i < n; ++i) x[static_cast<size_t>(i)] = (i - 20000) / 1000.0;
  Tensor d = Vector(x);
  Tensor f = ConvertTo(d, DType::kFloat);
  for (const Formula& c : kFormulas) {
    Tensor y = RunNode(c.op, {d}, c.attributes)[0];
    Tensor z = RunNode(c.op, {f}, c.attributes)[0];
    ASSERT_EQ(y.dtype(), DType::kDouble);
    ASSERT_EQ(z.dtype(), DType::kFloat);
    for (int i = 0; i < n; ++i) {
      double want = c.reference(DoubleAt(d, i));
      // The formula for tanh-Gelu cancels digits where ours does not.
      double noise = 5e-15 + 2e-15 * std::fabs(want);
      ASSERT_NEAR(DoubleAt(y, i), want, noise) << c.op << " " << DoubleAt(d, i);
      double from_float = c.reference(DoubleAt(f, i));
      // Gelu computes in float (elementary.h), the others in double.
      double ulps = std::string(c.op) == "Gelu" ? 6e-7 : 2.4e-7;
      ASSERT_NEAR(DoubleAt(z, i), from_float,
                  5e-15 + ulps * std::fabs(from_float))
          << c.op << " " << DoubleAt(f, i);
    }
  }
}

TEST(Activation, TailsKeepTheirDigits) {
  // 1 + erf(x) and 1 + tanh(u) would be 0 in float here.
  Tensor x = Vector<float>({-8});
  double y = DoubleAt(RunNode("Gelu", {x})[0], 0);
  EXPECT_NEAR(y, -8 * Cdf(-8), 6e-7 * 8 * Cdf(-8));
  double softplus = DoubleAt(RunNode("Softplus", {Vector<float>({-50})})[0], 0);
  EXPECT_NEAR(softplus, std::exp(-50.0), 1e-7 * std::exp(-50.0));
  // e^400 squared does not fit into a double.
  EXPECT_EQ(DoubleAt(RunNode("Mish", {Vector<float>({400})})[0], 0), 400);
}

TEST(Activation, NaNPassesThrough) {
  Tensor x = Vector<float>({std::numeric_limits<float>::quiet_NaN()});
  for (const Formula& c : kFormulas) {
    EXPECT_TRUE(std::isnan(DoubleAt(RunNode(c.op, {x}, c.attributes)[0], 0)))
        << c.op;
  }
}

TEST(Activation, InfinityAndHalfPrecision) {
  Tensor x = Vector<double>({kInfinity, -kInfinity});
  for (DType dtype : {DType::kFloat, DType::kDouble, DType::kBFloat16}) {
    Tensor typed = ConvertTo(x, dtype);
    Tensor s = RunNode("Sigmoid", {typed})[0];
    EXPECT_EQ(s.dtype(), dtype);
    EXPECT_EQ(DoubleAt(s, 0), 1);
    EXPECT_EQ(DoubleAt(s, 1), 0);
    Tensor p = RunNode("Softplus", {typed})[0];
    EXPECT_EQ(DoubleAt(p, 0), kInfinity);
    EXPECT_EQ(DoubleAt(p, 1), 0);
    // x times a number that is 0 at -infinity.
    for (const char* op : {"Mish", "Swish", "Gelu"}) {
      Tensor y = RunNode(op, {typed})[0];
      EXPECT_EQ(DoubleAt(y, 0), kInfinity) << op;
      EXPECT_TRUE(std::isnan(DoubleAt(y, 1))) << op;
    }
  }
}

// Ours, and its gradient; against differences in double.
TEST(Activation, SiluAndItsGradient) {
  const int n = 2001;
  std::vector<double> x(n);
  for (int i = 0; i < n; ++i) x[static_cast<size_t>(i)] = (i - 1000) / 50.0;
  auto silu = [](double v) { return v / (1 + std::exp(-v)); };
  Tensor d = Vector(x), f = ConvertTo(d, DType::kFloat);
  Tensor y = RunNode("Silu", {d}, {}, 1, kDomain)[0];
  Tensor z = RunNode("Silu", {f}, {}, 1, kDomain)[0];
  Tensor dy = ConvertTo(RandomNormal({n}, 9), DType::kDouble);
  Tensor dx = RunNode("SiluGrad", {dy, d}, {}, 1, kDomain)[0];
  Tensor dz =
      RunNode("SiluGrad", {ConvertTo(dy, DType::kFloat), f}, {}, 1, kDomain)[0];
  double tail =
      DoubleAt(RunNode("Silu", {Vector<float>({-80})}, {}, 1, kDomain)[0], 0);
  EXPECT_NEAR(tail, silu(-80), 1e-6 * std::fabs(silu(-80)));
  const double h = 1e-5;
  for (int i = 0; i < n; ++i) {
    double v = DoubleAt(d, i), from_float = silu(DoubleAt(f, i));
    ASSERT_NEAR(DoubleAt(y, i), silu(v), 1e-14) << v;
    ASSERT_NEAR(DoubleAt(z, i), from_float, 5e-7 * std::fabs(from_float)) << v;
    double slope = (silu(v + h) - silu(v - h)) / (2 * h);
    ASSERT_NEAR(DoubleAt(dx, i), DoubleAt(dy, i) * slope, 1e-8) << v;
    ASSERT_NEAR(DoubleAt(dz, i), DoubleAt(dx, i), 2e-6) << v;
  }
}

TEST(Activation, Clip) {
  Tensor x = Vector<int32_t>({-5, 0, 5, 9});
  Tensor low = Tensor::Scalar(-1), high = Tensor::Scalar(6);
  EXPECT_EQ(ToInts(RunNode("Clip", {x, low, high})[0]),
            (std::vector<int64_t>{-1, 0, 5, 6}));
  EXPECT_EQ(ToInts(RunNode("Clip", {x, Tensor(), high})[0]),
            (std::vector<int64_t>{-5, 0, 5, 6}));
  EXPECT_EQ(ToInts(RunNode("Clip", {x, high, low})[0]),
            (std::vector<int64_t>{-1, -1, -1, -1}));
  Tensor f = Vector<float>({kInfinity, -2});
  EXPECT_TRUE(Identical(RunNode("Clip", {f})[0], f));
  EXPECT_THROW(RunNode("Clip", {x, Tensor::Scalar(1.0f)}), Error);
  EXPECT_THROW(RunNode("Clip", {x, x}), Error);
}

// Against central differences of the op in double.
TEST(Activation, GeluGradients) {
  const int n = 2001;
  std::vector<double> x(n);
  for (int i = 0; i < n; ++i) x[static_cast<size_t>(i)] = (i - 1000) / 100.0;
  Tensor d = Vector(x);
  Tensor dy = ConvertTo(RandomNormal({n}, 9), DType::kDouble);
  const double h = 1e-5;
  for (bool tanh : {false, true}) {
    auto reference = [&](double v) { return tanh ? TanhGelu(v) : v * Cdf(v); };
    const char* op = tanh ? "GeluTanhGrad" : "GeluGrad";
    Tensor dx = RunNode(op, {dy, d}, {}, 1, kDomain)[0];
    Tensor fx =
        RunNode(op, {ConvertTo(dy, DType::kFloat), ConvertTo(d, DType::kFloat)},
                {}, 1, kDomain)[0];
    for (int i = 0; i < n; ++i) {
      double v = DoubleAt(d, i);
      double slope = (reference(v + h) - reference(v - h)) / (2 * h);
      ASSERT_NEAR(DoubleAt(dx, i), DoubleAt(dy, i) * slope, 1e-8) << op << v;
      ASSERT_NEAR(DoubleAt(fx, i), DoubleAt(dx, i), 2e-6) << op << v;
    }
    EXPECT_THROW(RunNode(op, {dy, Vector<double>({1})}, {}, 1, kDomain), Error);
  }
}

TEST(Dropout, InferenceIsTheIdentity) {
  Tensor x = RandomNormal({50}, 1);
  Tensor ratio = Tensor::Scalar(0.5f);
  Tensor off = Tensor::Zeros(DType::kBool, {});
  Tensor on = ConvertTo(Tensor::Scalar(1.0f), DType::kBool);
  Tensor none = Tensor::Scalar(0.0f);
  for (const auto& inputs :
       {std::vector<Tensor>{x}, {x, ratio}, {x, ratio, off}, {x, none, on}}) {
    std::vector<Tensor> y = RunNode("Dropout", inputs, {}, 2);
    EXPECT_TRUE(Identical(y[0], x));
    EXPECT_EQ(ToInts(y[1]), std::vector<int64_t>(50, 1));
  }
  EXPECT_THROW(RunNode("Dropout", {x, Tensor::Scalar(1.5f), on}), Error);
  EXPECT_THROW(RunNode("Dropout", {x, x, on}), Error);
}

TEST(Dropout, TrainingDrawsByCounter) {
  const int64_t n = 40000;
  Tensor x = RandomNormal({n}, 1);
  Tensor on = ConvertTo(Tensor::Scalar(1.0f), DType::kBool);
  std::vector<Tensor> y = RunNode("Dropout", {x, Tensor::Scalar(0.25f), on},
                                  {{"seed", int64_t{42}}}, 2);
  int64_t kept = 0;
  uint64_t seed = RandomBits(42, 0);  // of draw 0
  for (int64_t i = 0; i < n; ++i) {
    bool keep = y[1].data<bool>()[i];
    ASSERT_EQ(keep, RandomUniform(seed, static_cast<uint64_t>(i)) >= 0.25f);
    float scale = static_cast<float>(1.0 / 0.75);
    ASSERT_EQ(y[0].data<float>()[i], keep ? x.data<float>()[i] * scale : 0);
    kept += keep;
  }
  // Standard deviation of the count: 87.
  EXPECT_NEAR(static_cast<double>(kept), 0.75 * n, 500);
  Tensor all = RunNode("Dropout", {x, Tensor::Scalar(1.0f), on})[0];
  EXPECT_EQ(LargestDifference(all, Tensor::Zeros(DType::kFloat, {n})), 0);
}

// Also for 16 bits, although these types run through a copy in float.
TEST(Dropout, EachDrawHasItsMask) {
  const int64_t n = 1000;
  Graph graph;
  std::vector<Value*> in(3);
  Node* node = graph.AddNode("Dropout", in, {"y", "mask"});
  auto mask = [&](DType dtype, uint64_t draw) {
    std::vector<Tensor> x = {ConvertTo(RandomNormal({n}, 1), dtype),
                             Tensor::Scalar(0.5f), Tensor::Scalar(true)};
    std::vector<Tensor> y(2);
    KernelContext context(*node, x, y, draw);
    CpuKernels().Find("", "Dropout")->kernel(context);
    EXPECT_EQ(y[0].dtype(), dtype);
    return ToInts(y[1]);
  };
  for (uint64_t draw : {0, 1, 2}) {
    std::vector<int64_t> expected = mask(DType::kFloat, draw);
    for (DType dtype : {DType::kFloat16, DType::kBFloat16}) {
      EXPECT_EQ(mask(dtype, draw), expected);
      EXPECT_NE(mask(dtype, draw), mask(dtype, draw + 1));
    }
  }
}

}  // namespace
}  // namespace onnx_fp8
