// SPDX-License-Identifier: Apache-2.0
//
// Compares Attention and its gradient with their definition, written as loops
// in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/parallel.h"
#include "tests/providers/cpu/run_node.h"

namespace onnx_fp8 {
namespace {

struct Case {
  int64_t b, t, s, heads, groups, d, e;
  bool causal;
  Shape bias;  // empty: none
};

// All results of the definition: y, lse, dq, dk, dv.
struct Expected {
  std::vector<double> y, lse, dq, dk, dv;
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

Expected Define(const Case& c, double scale, const Tensor& q, const Tensor& k,
                const Tensor& v, const Tensor& bias, const Tensor& dy) {
  auto size = [](int64_t n) { return static_cast<size_t>(n); };
  Expected x;
  x.y.resize(size(dy.size()));
  x.lse.resize(size(c.b * c.heads * c.t));
  x.dq.resize(size(q.size()));
  x.dk.resize(size(k.size()));
  x.dv.resize(size(v.size()));
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
        std::vector<double> p(size(seen));
        double total = 0;
        for (int64_t j = 0; j < seen; ++j) {
          double score = 0;
          for (int64_t l = 0; l < c.d; ++l) {
            score += DoubleAt(q, at_q + l) * DoubleAt(k, at_k(j) + l);
          }
          p[size(j)] = std::exp(scale * score + BiasAt(bias, b, h, i, j));
          total += p[size(j)];
        }
        x.lse[size((b * c.heads + h) * c.t + i)] = std::log(total);
        double along = 0;
        std::vector<double> dp(size(seen));
        for (int64_t j = 0; j < seen; ++j) {
          p[size(j)] /= total;
          for (int64_t l = 0; l < c.e; ++l) {
            double value = DoubleAt(v, at_v(j) + l);
            double d = DoubleAt(dy, at_y + l);
            x.y[size(at_y + l)] += p[size(j)] * value;
            x.dv[size(at_v(j) + l)] += p[size(j)] * d;
            dp[size(j)] += d * value;
          }
          along += p[size(j)] * dp[size(j)];
        }
        for (int64_t j = 0; j < seen; ++j) {
          double ds = p[size(j)] * (dp[size(j)] - along) * scale;
          for (int64_t l = 0; l < c.d; ++l) {
            x.dq[size(at_q + l)] += ds * DoubleAt(k, at_k(j) + l);
            x.dk[size(at_k(j) + l)] += ds * DoubleAt(q, at_q + l);
          }
        }
      }
    }
  }
  return x;
}

void ExpectNear(const Tensor& got, const std::vector<double>& expected,
                double bound, const std::string& what) {
  ASSERT_EQ(got.size(), static_cast<int64_t>(expected.size())) << what;
  double largest = 1;
  for (double x : expected) largest = std::max(largest, std::fabs(x));
  for (int64_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(DoubleAt(got, i), expected[static_cast<size_t>(i)],
                bound * largest)
        << what << " at " << i;
  }
}

class Attention : public testing::TestWithParam<Case> {};

TEST_P(Attention, EqualsItsDefinition) {
  Case c = GetParam();
  for (DType dtype : {DType::kDouble, DType::kFloat}) {
    auto random = [&](Shape shape, uint64_t seed) {
      return ConvertTo(RandomNormal(std::move(shape), seed), dtype);
    };
    Tensor q = random({c.b, c.t, c.heads * c.d}, 1);
    Tensor k = random({c.b, c.s, c.groups * c.d}, 2);
    Tensor v = random({c.b, c.s, c.groups * c.e}, 3);
    Tensor dy = random({c.b, c.t, c.heads * c.e}, 4);
    Tensor bias;
    std::vector<Tensor> in = {q, k, v};
    if (!c.bias.empty()) in.push_back(bias = random(c.bias, 5));
    std::string op = bias.defined() ? "AttentionBias" : "Attention";
    Attributes attributes = {{"heads", c.heads},
                             {"kv_heads", c.groups},
                             {"scale", 0.4f},
                             {"causal", int64_t{c.causal}}};
    Expected x = Define(c, 0.4f, q, k, v, bias, dy);
    // Sums of up to some hundred terms.
    double bound = dtype == DType::kDouble ? 1e-12 : 4e-6;
    auto y = RunNode(op, in, attributes, 2, kDomain);
    ExpectNear(y[0], x.y, bound, "y");
    ExpectNear(y[1], x.lse, bound, "lse");
    in.insert(in.begin(), dy);
    in.push_back(y[0]);
    in.push_back(y[1]);
    auto d = RunNode(op + "Grad", in, attributes, 3, kDomain);
    ExpectNear(d[0], x.dq, bound, "dq");
    ExpectNear(d[1], x.dk, bound, "dk");
    ExpectNear(d[2], x.dv, bound, "dv");
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, Attention,
    testing::Values(Case{1, 1, 1, 1, 1, 1, 1, false, {}},
                    Case{2, 5, 7, 2, 2, 3, 4, false, {}},
                    Case{1, 150, 150, 2, 1, 8, 8, true, {}},
                    Case{1, 33, 70, 4, 2, 5, 6, true, {}},
                    Case{2, 64, 64, 4, 4, 16, 16, true, {}},
                    Case{2, 9, 40, 3, 1, 4, 4, false, {2, 1, 1, 40}},
                    Case{2, 70, 70, 2, 2, 4, 4, true, {2, 70, 70}},
                    Case{1, 20, 6, 2, 2, 4, 4, false, {6}},
                    Case{1, 20, 6, 2, 2, 4, 4, false, {20, 1}}),
    [](const auto& info) {
      const Case& c = info.param;
      return "T" + std::to_string(c.t) + "S" + std::to_string(c.s) + "H" +
             std::to_string(c.heads) + "G" + std::to_string(c.groups) +
             (c.causal ? "Causal" : "") +
             (c.bias.empty() ? ""
                             : "Bias" + std::to_string(c.bias.size()) +
                                   std::to_string(c.bias.back()));
    });

Tensor Attend(const Tensor& q, const Tensor& k, const Tensor& v,
              const Tensor& bias = {}) {
  std::vector<Tensor> in = {q, k, v};
  if (bias.defined()) in.push_back(bias);
  return RunNode(bias.defined() ? "AttentionBias" : "Attention", in,
                 {{"heads", int64_t{1}},
                  {"kv_heads", int64_t{1}},
                  {"scale", 1.0f},
                  {"causal", int64_t{0}}},
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
  Tensor q = RandomNormal({2, 100, 32}, 1), k = RandomNormal({2, 100, 32}, 2);
  std::vector<Tensor> results;
  for (int n : {1, 2, 3}) {
    SetNumThreads(n);
    results.push_back(Attend(q, k, k));
  }
  SetNumThreads(threads);
  EXPECT_TRUE(Identical(results[0], results[1]));
  EXPECT_TRUE(Identical(results[0], results[2]));
}

TEST(Attention, OperandsThatDoNotFit) {
  Tensor q = Count({1, 2, 6}), k = Count({1, 3, 4}), v = Count({1, 3, 6});
  auto error = [&](int64_t heads, const std::vector<Tensor>& in) {
    return ErrorOf(in.size() == 3 ? "Attention" : "AttentionBias", in,
                   {{"heads", heads},
                    {"kv_heads", heads},
                    {"scale", 1.0f},
                    {"causal", int64_t{0}}},
                   2, kDomain);
  };
  EXPECT_NE(error(2, {q, k, v}).find("[1,3,4]"), std::string::npos);
  EXPECT_NE(error(0, {q, v, v}).find("heads"), std::string::npos);
  EXPECT_NE(error(4, {q, v, v}).find("heads"), std::string::npos);
  EXPECT_NE(error(2, {q, v, v, Count({4})}).find("[1,2,2,3]"),
            std::string::npos);
}

}  // namespace
}  // namespace onnx_fp8
