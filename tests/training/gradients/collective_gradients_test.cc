// SPDX-License-Identifier: Apache-2.0
//
// Gradients through collectives against differences of the loss of all ranks.
#include <gtest/gtest.h>

#include "base/check.h"
#include "providers/cpu/cpu_provider.h"
#include "providers/run/executor.h"
#include "tests/graph/parse.h"
#include "tests/support/thread_ranks.h"
#include "tests/training/gradient_check.h"

namespace onnx_fp8 {
namespace {

constexpr int kRanks = 3;
using RankValues = std::vector<double>;

Tensor DoublesOfRank(const RankValues& values) {
  return Tensor::From<double>({static_cast<int64_t>(values.size())}, values);
}

// The loss and each rank's gradient of x. Rank r has x[r], and the weights w of
// the loss depend on the rank.
struct RankGradients {
  double loss = 0;
  std::vector<RankValues> dx;
};

RankGradients RunAll(const std::string& text, const std::vector<RankValues>& x,
                     size_t n) {
  RankGradients result;
  result.dx.resize(kRanks);
  RunRanks(kRanks, [&](Communicator& ranks) {
    const auto r = static_cast<size_t>(ranks.rank());
    const std::shared_ptr<Graph> graph = ParseGraph(text);
    Value* wanted = graph->Find("x");
    BackwardResult backward =
        Differentiate(*graph, graph->Find("loss"), {wanted});
    Value* gradient = backward.gradient.at(wanted);
    graph->outputs = {graph->Find("loss"), gradient};
    RankValues w(n);
    for (size_t i = 0; i < n; ++i) w[i] = 1 + 0.5 * double(i) + 0.1 * double(r);
    const auto provider = MakeCpuProvider();
    Executor executor(graph, *provider);
    const Groups groups = {{"dp", &ranks}};
    executor.set_groups(&groups);
    TensorMap state;
    const TensorMap y = executor.Run(
        {{"x", DoublesOfRank(x[r])}, {"w", DoublesOfRank(w)}}, state);
    const Tensor& dx = y.at(gradient->name);
    result.dx[r] = {dx.data<double>(), dx.data<double>() + dx.size()};
    if (r == 0) result.loss = y.at("loss").data<double>()[0];
  });
  return result;
}

// `n`: elements of x on a rank, `weights`: of w.
void ExpectDerivatives(const std::string& text, size_t n, size_t weights) {
  std::vector<RankValues> x(kRanks, RankValues(n));
  for (size_t r = 0; r < kRanks; ++r) {
    for (size_t i = 0; i < n; ++i) x[r][i] = 0.3 * double(i) - 0.7 * double(r);
  }
  x[2][0] = x[0][0] - 1;  // the largest one is not on the same rank everywhere
  x[1][n - 1] = 2;
  const RankGradients at = RunAll(text, x, weights);
  constexpr double kStep = 1e-5;
  for (size_t r = 0; r < kRanks; ++r) {
    ASSERT_EQ(at.dx[r].size(), n);
    for (size_t i = 0; i < n; ++i) {
      std::vector<RankValues> up = x, down = x;
      up[r][i] += kStep;
      down[r][i] -= kStep;
      const double slope =
          (RunAll(text, up, weights).loss - RunAll(text, down, weights).loss) /
          (2 * kStep);
      EXPECT_NEAR(at.dx[r][i], slope, 1e-7 * (1 + std::abs(slope)))
          << "rank " << r << " element " << i;
    }
  }
}

// The part of the loss that depends on a rank, and the sum of all parts.
const std::string kSumOfSquares = R"(
square: double[N] = Mul(y, y)
parts: double[N] = Mul(square, w)
part: double[] = ReduceSum<keepdims=0>(parts)
loss: double[] = onnx_fp8.AllReduce<group="dp", ranks=3, reduction="sum">(part)
output loss
)";

std::string WithSize(std::string text, const std::string& n) {
  text += kSumOfSquares;
  for (size_t at; (at = text.find("[N]")) != std::string::npos;) {
    text.replace(at, 3, "[" + n + "]");
  }
  return text;
}

TEST(CollectiveGradientsTest, AllGather) {
  ExpectDerivatives(WithSize(R"(
input x: double[2]
input w: double[6]
y: double[6] = onnx_fp8.AllGather<group="dp", ranks=3>(x)
)",
                             "6"),
                    2, 6);
}

TEST(CollectiveGradientsTest, ReduceScatter) {
  ExpectDerivatives(WithSize(R"(
input x: double[6]
input w: double[2]
y: double[2] = onnx_fp8.ReduceScatter<group="dp", ranks=3>(x)
)",
                             "2"),
                    6, 2);
}

// Behind it all ranks compute alike, with equal weights.
std::string AllReduceText(const std::string& reduction) {
  return R"(
input x: double[3]
input w: double[3]
const equal: double[3] = {1,2,3}
y: double[3] = onnx_fp8.AllReduce<group="dp", ranks=3, reduction=")" +
         reduction + R"(">(x)
square: double[3] = Mul(y, y)
parts: double[3] = Mul(square, equal)
loss: double[] = ReduceSum<keepdims=0>(parts)
output loss
)";
}

TEST(CollectiveGradientsTest, AllReduceSum) {
  ExpectDerivatives(AllReduceText("sum"), 3, 3);
}
TEST(CollectiveGradientsTest, AllReduceMax) {
  ExpectDerivatives(AllReduceText("max"), 3, 3);
}

// Equal elements share the gradient of the maximum.
TEST(CollectiveGradientsTest, EqualMaxima) {
  const std::vector<RankValues> x(kRanks, RankValues{1, 1, 1});
  for (const RankValues& dx : RunAll(AllReduceText("max"), x, 3).dx) {
    EXPECT_EQ(dx, (RankValues{2.0 / 3, 4.0 / 3, 6.0 / 3}));
  }
}

}  // namespace
}  // namespace onnx_fp8
