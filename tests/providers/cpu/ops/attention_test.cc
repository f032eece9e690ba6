// SPDX-License-Identifier: Apache-2.0
//
// Compares Attention and its gradient with their definition, written as loops
// in double, on every instruction set.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/parallel.h"
#include "tests/providers/cpu/isas.h"
#include "tests/providers/cpu/run_node.h"

namespace onnx_fp8 {
namespace {

constexpr double kLow = std::numeric_limits<float>::lowest();

struct Case {
  int64_t b, t, s, heads, groups, d, e;
  bool causal;
  Shape bias;  // empty: none
  bool relative = false;
  double mask = 0;  // the first three quarters of the bias, if it is not 0
};

// All results of the definition, and the sums of the absolute values of their
// terms: of p v, ds k, ds q and p dy.
struct Expected {
  std::vector<double> y, lse, dq, dk, dv, drelative;
  std::vector<double> y_terms, dq_terms, dk_terms, dv_terms, drelative_terms;
};

// Element of the bias at (b, h, i, j) of its broadcast.
double BiasAt(const Tensor& bias, int64_t b, int64_t h, int64_t i, int64_t j) {
  if (!bias.defined()) return 0;
  int64_t index[4] = {b, h, i, j}, at = 0;
  for (int64_t axis = 0; axis < bias.rank(); ++axis) {
    int64_t k = index[4 - bias.rank() + axis];
    at = at * bias.dim(axis) + (bias.dim(axis) == 1 ? 0 : k);
  }
  return DoubleAt(bias, at);
}

Expected Zeros(const Case& c, const Tensor& q, const Tensor& k, const Tensor& v,
               const Tensor& dy) {
  auto size = [](int64_t n) { return static_cast<size_t>(n); };
  Expected x;
  x.y.resize(size(dy.size()));
  x.lse.resize(size(c.b * c.heads * c.t));
  x.dq.resize(size(q.size()));
  x.dk.resize(size(k.size()));
  x.dv.resize(size(v.size()));
  x.drelative.resize(size(c.heads * (c.t + c.s - 1)));
  x.drelative_terms.resize(x.drelative.size());
  x.y_terms.resize(x.y.size());
  x.dq_terms.resize(x.dq.size());
  x.dk_terms.resize(x.dk.size());
  x.dv_terms.resize(x.dv.size());
  return x;
}

Expected Define(const Case& c, double scale, const Tensor& q, const Tensor& k,
                const Tensor& v, const Tensor& relative, const Tensor& bias,
                const Tensor& dy) {
  // Scores are sums of floats, which is what makes -1e9 + 1 equal -1e9.
  bool exact = q.dtype() == DType::kDouble;
  auto size = [](int64_t n) { return static_cast<size_t>(n); };
  Expected x = Zeros(c, q, k, v, dy);
  auto add = [](std::vector<double>& sum, std::vector<double>& terms, size_t at,
                double term) {
    sum[at] += term;
    terms[at] += std::fabs(term);
  };
  for (int64_t b = 0; b < c.b; ++b) {
    for (int64_t h = 0; h < c.heads; ++h) {
      int64_t g = h / (c.heads / c.groups);
      for (int64_t i = 0; i < c.t; ++i) {
        int64_t seen = c.causal ? std::min(c.s, i + 1) : c.s;
        int64_t at_q = ((b * c.t + i) * c.heads + h) * c.d;
        int64_t at_y = ((b * c.t + i) * c.heads + h) * c.e;
        auto at_k = [&](int64_t j) {
          return ((b * c.s + j) * c.groups + g) * c.d;
        };
        auto at_v = [&](int64_t j) {
          return ((b * c.s + j) * c.groups + g) * c.e;
        };
        auto distance = [&](int64_t j) {
          return h * (c.t + c.s - 1) + j - i + c.t - 1;
        };
        std::vector<double> p(size(seen));
        double total = 0, largest = -std::numeric_limits<double>::infinity();
        for (int64_t j = 0; j < seen; ++j) {
          double score = 0;
          for (int64_t l = 0; l < c.d; ++l) {
            score += DoubleAt(q, at_q + l) * DoubleAt(k, at_k(j) + l);
          }
          double added = BiasAt(bias, b, h, i, j);
          if (relative.defined()) added += DoubleAt(relative, distance(j));
          double sum = scale * score + added;
          bool rounds = !exact && std::fabs(added) >= 1e9;
          p[size(j)] = rounds ? static_cast<float>(sum) : sum;
          largest = std::max(largest, p[size(j)]);
        }
        for (double& power : p) total += power = std::exp(power - largest);
        x.lse[size((b * c.heads + h) * c.t + i)] = largest + std::log(total);
        double along = 0;
        std::vector<double> dp(size(seen));
        for (int64_t j = 0; j < seen; ++j) {
          p[size(j)] /= total;
          for (int64_t l = 0; l < c.e; ++l) {
            double value = DoubleAt(v, at_v(j) + l);
            double d = DoubleAt(dy, at_y + l);
            add(x.y, x.y_terms, size(at_y + l), p[size(j)] * value);
            add(x.dv, x.dv_terms, size(at_v(j) + l), p[size(j)] * d);
            dp[size(j)] += d * value;
          }
          along += p[size(j)] * dp[size(j)];
        }
        for (int64_t j = 0; j < seen; ++j) {
          double ds = p[size(j)] * (dp[size(j)] - along);
          add(x.drelative, x.drelative_terms, size(distance(j)), ds);
          ds *= scale;
          for (int64_t l = 0; l < c.d; ++l) {
            add(x.dq, x.dq_terms, size(at_q + l),
                ds * DoubleAt(k, at_k(j) + l));
            add(x.dk, x.dk_terms, size(at_k(j) + l),
                ds * DoubleAt(q, at_q + l));
          }
        }
      }
    }
  }
  return x;
}

// |got - expected| <= bound · the largest number + rounding · terms.
void ExpectNear(const Tensor& got, const std::vector<double>& expected,
                double bound, const std::vector<double>& terms, double rounding,
                const std::string& what) {
  ASSERT_EQ(got.size(), static_cast<int64_t>(expected.size())) << what;
  double largest = 1;
  for (double x : expected) largest = std::max(largest, std::fabs(x));
  for (size_t i = 0; i < expected.size(); ++i) {
    double own = terms.empty() ? 0 : rounding * terms[i];
    ASSERT_NEAR(DoubleAt(got, static_cast<int64_t>(i)), expected[i],
                bound * largest + own)
        << what << " at " << i;
  }
}

class Attention : public testing::TestWithParam<Case> {};

// Runs the case in `dtype` on every instruction set; with bfloat16 and float16
// the operands are rounded floats, and products round theirs.
void ExpectTheDefinition(const Case& c, DType dtype) {
  bool rounded = IsHalf(dtype);
  DType computed = rounded ? DType::kFloat : dtype;
  auto random = [&](Shape shape, uint64_t seed) {
    Tensor x = ConvertTo(RandomNormal(std::move(shape), seed), dtype);
    return ConvertTo(x, computed);
  };
  auto made = [&](const std::vector<double>& values, const Shape& shape) {
    Tensor x = Tensor::Allocate(DType::kDouble, shape);
    std::ranges::copy(values, x.data<double>());
    return ConvertTo(x, computed);
  };
  Tensor q = random({c.b, c.t, c.heads * c.d}, 1);
  Tensor k = random({c.b, c.s, c.groups * c.d}, 2);
  Tensor v = random({c.b, c.s, c.groups * c.e}, 3);
  Tensor dy = random({c.b, c.t, c.heads * c.e}, 4);
  Tensor bias, relative;
  std::vector<Tensor> in = {q, k, v};
  if (c.relative) {
    in.push_back(relative = random({c.heads, c.t + c.s - 1}, 6));
  }
  if (!c.bias.empty()) in.push_back(bias = random(c.bias, 5));
  for (int64_t i = 0; c.mask != 0 && i < bias.size() * 3 / 4; ++i) {
    if (computed == DType::kDouble) {
      bias.data<double>()[i] = c.mask;
    } else {
      bias.data<float>()[i] = static_cast<float>(c.mask);
    }
  }
  std::string op = relative.defined() ? "AttentionRelative"
                   : bias.defined()   ? "AttentionBias"
                                      : "Attention";
  Attributes attributes = {{"heads", c.heads},
                           {"kv_heads", c.groups},
                           {"scale", 0.4f},
                           {"causal", int64_t{c.causal}},
                           {"round_to", static_cast<int64_t>(dtype)}};
  Expected x = Define(c, 0.4f, q, k, v, relative, bias, dy);
  // Sums of up to some hundred terms, and a factor of each term that is rounded
  // to 8 bits or 11.
  double bound = computed == DType::kDouble ? 1e-12 : 4e-6;
  double rounding = dtype == DType::kBFloat16  ? 0x1p-8
                    : dtype == DType::kFloat16 ? 0x1p-11
                                               : 0;
  std::vector<Tensor> of_grad = in;
  of_grad.insert(of_grad.begin(), dy);
  of_grad.push_back(made(x.y, dy.shape()));
  of_grad.push_back(made(x.lse, {c.b, c.heads, c.t}));
  for (Isa isa : RunnableIsas()) {
    WithIsa with(isa);
    SCOPED_TRACE(std::string(Name(isa)) + ", " + Name(dtype));
    auto y = RunNode(op, in, attributes, 2, kDomain);
    ExpectNear(y[0], x.y, bound, x.y_terms, rounding, "y");
    ExpectNear(y[1], x.lse, bound, {}, 0, "lse");
    auto d =
        RunNode(op + "Grad", of_grad, attributes, c.relative ? 4 : 3, kDomain);
    if (c.relative) {
      ExpectNear(d[3], x.drelative, bound, x.drelative_terms, rounding,
                 "drelative");
    }
    ExpectNear(d[0], x.dq, bound, x.dq_terms, rounding, "dq");
    ExpectNear(d[1], x.dk, bound, x.dk_terms, rounding, "dk");
    ExpectNear(d[2], x.dv, bound, x.dv_terms, rounding, "dv");
  }
}

TEST_P(Attention, EqualsItsDefinition) {
  for (DType dtype :
       {DType::kDouble, DType::kFloat, DType::kBFloat16, DType::kFloat16}) {
    ExpectTheDefinition(GetParam(), dtype);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, Attention,
    testing::Values(
        Case{1, 1, 1, 1, 1, 1, 1, false, {}},
        Case{2, 5, 7, 2, 2, 3, 4, false, {}},
        Case{1, 150, 150, 2, 1, 8, 8, true, {}},
        Case{1, 33, 70, 4, 2, 5, 6, true, {}},
        Case{2, 64, 64, 4, 4, 16, 16, true, {}},
        Case{2, 9, 40, 3, 1, 4, 4, false, {2, 1, 1, 40}},
        Case{2, 70, 70, 2, 2, 4, 4, true, {2, 70, 70}},
        Case{1, 20, 6, 2, 2, 4, 4, false, {6}},
        Case{1, 20, 6, 2, 2, 4, 4, false, {20, 1}},
        Case{2, 5, 7, 2, 2, 3, 4, false, {1}, true},
        Case{3, 130, 130, 4, 2, 4, 4, true, {1}, true},
        Case{2, 300, 600, 2, 1, 3, 4, false, {600}, true},
        // Several blocks of rows and columns.
        Case{1, 290, 300, 2, 2, 36, 20, true, {}},
        Case{1, 300, 270, 1, 1, 33, 70, true, {270}},
        Case{1, 140, 280, 2, 1, 7, 9, false, {140, 280}},
        // Several splits, and a wave that ends inside a group.
        Case{1, 70, 1100, 6, 1, 5, 3, false, {}},
        Case{1, 600, 600, 6, 2, 4, 4, true, {}},
        // Keys that no row sees.
        Case{2, 40, 1050, 1, 1, 3, 3, true, {}},
        // Rows that see masks only: all keys alike.
        Case{2, 5, 7, 2, 2, 3, 4, false, {2, 1, 1, 7}, false, kLow},
        Case{2, 5, 7, 2, 1, 3, 4, false, {2, 1, 1, 7}, true, kLow},
        Case{2, 150, 150, 2, 1, 8, 8, true, {2, 1, 1, 150}, false, kLow},
        Case{2, 40, 1050, 2, 2, 4, 4, false, {2, 1, 1, 1050}, false, -1e9},
        Case{2, 300, 300, 2, 1, 4, 4, true, {2, 1, 1, 300}, false, -1e9}),
    [](const auto& info) {
      const Case& c = info.param;
      return "T" + std::to_string(c.t) + "S" + std::to_string(c.s) + "H" +
             std::to_string(c.heads) + "G" + std::to_string(c.groups) +
             (c.causal ? "Causal" : "") + (c.relative ? "Relative" : "") +
             (c.mask == 0     ? ""
              : c.mask > kLow ? "Masked"
                              : "MaskedByTheLowest") +
             (c.bias.empty() ? ""
                             : "Bias" + std::to_string(c.bias.size()) +
                                   std::to_string(c.bias.back()));
    });

// Sizes of AttentionPacked.
struct PackedCase {
  int64_t b, t, heads, groups, d;
  bool causal;
  Shape bias;
};

class PackedAttention : public testing::TestWithParam<PackedCase> {};

// Packed operands give the bits of operands of their own, in both orders of
// batch and time. In bfloat16 they are kept in 16 bits, too.
TEST_P(PackedAttention, GivesTheBitsOfSeparateOperands) {
  const PackedCase& c = GetParam();
  Tensor q = RandomNormal({c.b, c.t, c.heads * c.d}, 1);
  Tensor k = RandomNormal({c.b, c.t, c.groups * c.d}, 2);
  Tensor v = RandomNormal({c.b, c.t, c.groups * c.d}, 3);
  Tensor dy = RandomNormal({c.b, c.t, c.heads * c.d}, 4);
  std::vector<Tensor> bias;
  if (!c.bias.empty()) bias.push_back(RandomNormal(c.bias, 5));
  auto with_bias = [&](std::vector<Tensor> in) {
    in.insert(in.end(), bias.begin(), bias.end());
    return in;
  };
  auto concat = [](const std::vector<Tensor>& parts) {
    return RunNode("Concat", parts, {{"axis", int64_t{2}}})[0];
  };
  const std::string end = bias.empty() ? "" : "Bias";
  for (DType dtype : {DType::kFloat, DType::kBFloat16}) {
    Attributes attributes = {{"heads", c.heads},
                             {"kv_heads", c.groups},
                             {"scale", 0.4f},
                             {"causal", int64_t{c.causal}},
                             {"round_to", static_cast<int64_t>(dtype)}};
    for (Isa isa : RunnableIsas()) {
      WithIsa with(isa);
      SCOPED_TRACE(std::string(Name(isa)) + ", " + Name(dtype));
      auto y = RunNode("Attention" + end, with_bias({q, k, v}), attributes, 2,
                       kDomain);
      std::vector<Tensor> of_grad = with_bias({dy, q, k, v});
      of_grad.insert(of_grad.end(), y.begin(), y.end());
      Tensor d = concat(
          RunNode("Attention" + end + "Grad", of_grad, attributes, 3, kDomain));
      for (const std::vector<int64_t>& perm :
           {std::vector<int64_t>{0, 1, 2}, std::vector<int64_t>{1, 0, 2}}) {
        auto turned = [&](const Tensor& x) {
          return RunNode("Transpose", {x}, {{"perm", perm}})[0];
        };
        Attributes packed = attributes;
        packed["perm"] = perm;
        Tensor qkv = turned(concat({q, k, v}));
        auto got = RunNode("AttentionPacked" + end, with_bias({qkv}), packed, 2,
                           kDomain);
        EXPECT_TRUE(Identical(got[0], turned(y[0]))) << perm[0];
        EXPECT_TRUE(Identical(got[1], y[1])) << perm[0];
        of_grad = with_bias({turned(dy), qkv});
        of_grad.insert(of_grad.end(), got.begin(), got.end());
        got = RunNode("AttentionPacked" + end + "Grad", of_grad, packed, 1,
                      kDomain);
        EXPECT_TRUE(Identical(got[0], turned(d))) << perm[0];
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, PackedAttention,
    testing::Values(PackedCase{1, 1, 1, 1, 1, false, {}},
                    PackedCase{2, 7, 3, 3, 5, false, {}},
                    PackedCase{3, 40, 6, 2, 8, true, {}},
                    // Rows that lie 4096 bytes apart.
                    PackedCase{2, 150, 12, 2, 64, true, {}},
                    PackedCase{4, 70, 2, 2, 16, false, {4, 1, 70, 70}},
                    // Several splits of keys.
                    PackedCase{2, 600, 2, 1, 4, true, {600}},
                    PackedCase{2, 0, 2, 2, 4, false, {}},
                    PackedCase{0, 3, 2, 2, 4, false, {}}),
    [](const auto& info) {
      const PackedCase& c = info.param;
      return "B" + std::to_string(c.b) + "T" + std::to_string(c.t) + "H" +
             std::to_string(c.heads) + "D" + std::to_string(c.d);
    });

Tensor Attend(const Tensor& q, const Tensor& k, const Tensor& v,
              const Tensor& bias = {}) {
  std::vector<Tensor> in = {q, k, v};
  if (bias.defined()) in.push_back(bias);
  return RunNode(bias.defined() ? "AttentionBias" : "Attention", in,
                 {{"heads", int64_t{1}},
                  {"kv_heads", int64_t{1}},
                  {"scale", 1.0f},
                  {"causal", int64_t{0}},
                  {"round_to", static_cast<int64_t>(q.dtype())}},
                 2, kDomain)[0];
}

TEST(Attention, HiddenColumnsCountForNothing) {
  float inf = std::numeric_limits<float>::infinity();
  Tensor q = Floats({1, 1, 1}, {1}), k = Floats({1, 3, 1}, {1, 2, 3});
  Tensor v = Floats({1, 3, 1}, {5, 7, 9});
  EXPECT_EQ(Doubles(Attend(q, k, v, Floats({3}, {-inf, 0, -inf})))[0], 7);
  // A row that sees nothing has no probabilities.
  EXPECT_TRUE(std::isnan(Doubles(Attend(q, k, v, Floats({1}, {-inf})))[0]));
  // Scores far beyond the range of e^x.
  EXPECT_EQ(Doubles(Attend(Floats({1, 1, 1}, {1000}), k, v))[0], 9);
}

TEST(Attention, TheNumberOfThreadsChangesNothing) {
  int threads = NumThreads();
  for (int64_t t : {100, 600}) {
    Tensor q = RandomNormal({1, t, 48}, 1), k = RandomNormal({1, t, 16}, 2);
    std::vector<Tensor> first;
    for (int n : {1, 2, 3}) {
      SetNumThreads(n);
      Attributes attributes = {{"heads", int64_t{6}},
                               {"kv_heads", int64_t{2}},
                               {"scale", 1.0f},
                               {"causal", int64_t{1}},
                               {"round_to", int64_t{16}}};
      auto all = RunNode("Attention", {q, k, k}, attributes, 2, kDomain);
      for (Tensor& x : RunNode("AttentionGrad", {q, q, k, k, all[0], all[1]},
                               attributes, 3, kDomain)) {
        all.push_back(x);
      }
      if (n == 1) first = all;
      for (size_t i = 0; i < all.size(); ++i) {
        EXPECT_TRUE(Identical(all[i], first[i])) << t << ", " << n << ", " << i;
      }
    }
  }
  SetNumThreads(threads);
}

Attributes OneHead(DType round_to) {
  return {{"heads", int64_t{1}},
          {"kv_heads", int64_t{1}},
          {"scale", 1.0f},
          {"causal", int64_t{0}},
          {"round_to", static_cast<int64_t>(round_to)}};
}

// Two keys: their powers are 1 and e^-1.
TEST(Attention, ProductsReadRoundedNumbers) {
  Tensor q = Floats({1, 1, 1}, {1}), k = Floats({1, 2, 1}, {0, -1});
  Tensor v = Floats({1, 2, 1}, {0, 1}), dy = q;
  double power = std::exp(-1.0), total = 1 + power, p = power / total;
  double y = p;
  for (DType dtype : {DType::kFloat, DType::kBFloat16, DType::kFloat16}) {
    auto round = [&](double x) {
      Tensor exact = Floats({1}, {static_cast<float>(x)});
      return Doubles(ConvertTo(ConvertTo(exact, dtype), DType::kFloat))[0];
    };
    for (Isa isa : RunnableIsas()) {
      WithIsa with(isa);
      SCOPED_TRACE(std::string(Name(isa)) + ", " + Name(dtype));
      auto got = RunNode("Attention", {q, k, v}, OneHead(dtype), 2, kDomain);
      EXPECT_NEAR(Doubles(got[0])[0], round(power) / total, 1e-7);
      Tensor exact = Floats({1, 1, 1}, {static_cast<float>(y)});
      auto d = RunNode("AttentionGrad", {dy, q, k, v, exact, got[1]},
                       OneHead(dtype), 3, kDomain);
      EXPECT_NEAR(Doubles(d[0])[0], -round(p * (1 - y)), 1e-7);
      EXPECT_NEAR(Doubles(d[1])[0], round((1 - p) * (0 - y)), 1e-7);
      EXPECT_NEAR(Doubles(d[2])[1], round(p), 1e-7);
    }
  }
}

TEST(Attention, ARowThatSeesNothingInItsFirstBlocks) {
  constexpr int64_t kSize = 700;
  Tensor q = Floats({1, 1, 1}, {1}), v = Count({1, kSize, 1});
  Tensor k = Tensor::Zeros(DType::kFloat, {1, kSize, 1});
  Tensor bias = Tensor::Zeros(DType::kFloat, {kSize});
  std::fill_n(bias.data<float>(), 698, -std::numeric_limits<float>::infinity());
  EXPECT_EQ(Doubles(Attend(q, k, v, bias))[0], 698.5);
}

// A thread's buffers hold NaN from the first call; operands of bfloat16 are
// filled up with zeros.
TEST(Attention, NumbersOfTheLastCall) {
  int threads = NumThreads();
  SetNumThreads(1);
  for (Isa isa : RunnableIsas()) {
    WithIsa with(isa);
    Tensor q = Tensor::Zeros(DType::kFloat, {1, 300, 64});
    std::fill_n(q.data<float>(), q.size(),
                std::numeric_limits<float>::quiet_NaN());
    for (int64_t size : {300, 17}) {
      if (size < 300) q = RandomNormal({1, size, 9}, 1);
      auto y = RunNode("Attention", {q, q, q}, OneHead(DType::kBFloat16), 2,
                       kDomain);
      auto all = RunNode("AttentionGrad", {q, q, q, q, y[0], y[1]},
                         OneHead(DType::kBFloat16), 3, kDomain);
      all.push_back(y[0]);
      for (const Tensor& x : all) {
        for (float number : x.values<float>()) {
          ASSERT_EQ(std::isnan(number), size == 300) << Name(isa);
        }
      }
    }
  }
  SetNumThreads(threads);
}

TEST(Attention, OperandsThatDoNotFit) {
  Tensor q = Count({1, 2, 6}), k = Count({1, 3, 4}), v = Count({1, 3, 6});
  auto error = [&](int64_t heads, const std::vector<Tensor>& in) {
    return ErrorOf(in.size() == 3 ? "Attention" : "AttentionBias", in,
                   {{"heads", heads},
                    {"kv_heads", heads},
                    {"scale", 1.0f},
                    {"causal", int64_t{0}},
                    {"round_to", static_cast<int64_t>(q.dtype())}},
                   2, kDomain);
  };
  EXPECT_NE(error(2, {q, k, v}).find("[1,3,4]"), std::string::npos);
  EXPECT_NE(error(0, {q, v, v}).find("heads"), std::string::npos);
  EXPECT_NE(error(4, {q, v, v}).find("heads"), std::string::npos);
  EXPECT_NE(error(2, {q, v, v, Count({4})}).find("[1,2,2,3]"),
            std::string::npos);
}

TEST(PackedAttention, OperandsThatDoNotFit) {
  Attributes attributes = {
      {"heads", int64_t{2}},    {"kv_heads", int64_t{1}},
      {"scale", 1.0f},          {"causal", int64_t{0}},
      {"round_to", int64_t{1}}, {"perm", std::vector<int64_t>{0, 1, 2}}};
  auto error = [&](const std::string& op, const std::vector<Tensor>& in) {
    return ErrorOf(op, in, attributes, 2, kDomain);
  };
  Tensor qkv = Count({1, 3, 8});
  EXPECT_EQ(error("AttentionPacked", {qkv}), "");
  EXPECT_NE(error("AttentionPacked", {Count({1, 3, 6})}).find("[1,3,6]"),
            std::string::npos);
  EXPECT_NE(error("AttentionPacked", {Count({3, 8})}).find("[3,8]"),
            std::string::npos);
  EXPECT_NE(error("AttentionPackedBias", {qkv, Count({4})}).find("[1,2,3,3]"),
            std::string::npos);
  attributes["perm"] = std::vector<int64_t>{2, 1, 0};
  EXPECT_NE(error("AttentionPacked", {qkv}).find("perm"), std::string::npos);
}

}  // namespace
}  // namespace onnx_fp8
