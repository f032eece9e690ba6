// SPDX-License-Identifier: Apache-2.0
#include "providers/run/not_finite_watch.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "providers/cpu/cpu_provider.h"
#include "providers/run/executor.h"
#include "tests/graph/parse.h"

namespace onnx_fp8 {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
const float kNaN = std::nanf("");

Tensor Rows(std::vector<float> values) {
  return Tensor::From<float>({std::ssize(values) / 2, 2}, values);
}

class NotFiniteWatchTest : public testing::Test {
 protected:
  // Runs the graph on a batch of samples along axis 0 of x.
  void Run(const std::string& text, const TensorMap& feeds,
           TensorMap state = {}) {
    graph_ = ParseGraph(text);
    auto provider = MakeCpuProvider();
    Executor executor(graph_, *provider);
    watch_.emplace(std::vector<int64_t>{feeds.at("x").dim(0)},
                   std::set<std::string>{"x"});
    TensorMap unwatched_state;
    for (const auto& [name, tensor] : state) {
      unwatched_state[name] = tensor.Clone();
    }
    executor.set_observer(&*watch_);
    const TensorMap watched = executor.Run(feeds, state);
    executor.set_observer(nullptr);
    for (const auto& [name, tensor] : executor.Run(feeds, unwatched_state)) {
      EXPECT_TRUE(Identical(tensor, watched.at(name))) << name;
    }
  }
  const NotFiniteOrigin& found() const { return *watch_->found(); }

  std::shared_ptr<Graph> graph_;
  std::optional<NotFiniteWatch> watch_;
};

constexpr char kLog[] = R"(
input x: float[3,2]
a: float[3,2] = Abs(x)
l: float[3,2] = Log(a)
e: float[3,2] = Exp(l)
s: float[] = ReduceMean<keepdims=0>(e)
y: float[] = Neg(s)
output y
output l
)";

TEST_F(NotFiniteWatchTest, NamesTheFirstNode) {
  Run(kLog, {{"x", Rows({1, 2, -3, 0, 5, 0})}});
  ASSERT_TRUE(watch_->found() && watch_->reaches_results());
  EXPECT_EQ(found().op, "Log");
  EXPECT_EQ(found().source, NotFiniteOrigin::Source::kNode);
  EXPECT_EQ(found().index, (std::vector<int64_t>{1, 1}));
  EXPECT_EQ(found().sample, 1);
  EXPECT_FALSE(found().is_nan);
  EXPECT_EQ(found().result.range->infinite, 2);
  ASSERT_EQ(found().operands.size(), 1u);
  EXPECT_EQ(found().operands[0].name, "a");
  EXPECT_EQ(found().operands[0].range->min, 0);
  EXPECT_EQ(found().operands[0].range->max, 5);
}

TEST_F(NotFiniteWatchTest, FindsNothingInFiniteNumbers) {
  Run(kLog, {{"x", Rows({1, 2, -3, 4, 5, 6})}});
  EXPECT_FALSE(watch_->found());
  ASSERT_FALSE(watch_->largest().empty());
  EXPECT_FLOAT_EQ(static_cast<float>(watch_->largest()[0].amax), 6);
}

// -Inf that Exp makes 0 is no fault.
TEST_F(NotFiniteWatchTest, WhatReachesNoResultIsNoFault) {
  std::string text = kLog;
  text.resize(text.find("output l"));
  Run(text, {{"x", Rows({1, 2, -3, 0, 5, 0})}});
  EXPECT_FALSE(watch_->reaches_results());
  ASSERT_TRUE(watch_->found());  // an update may have looked at a flag alone
  EXPECT_EQ(found().op, "Log");
}

TEST_F(NotFiniteWatchTest, NamesAnInput) {
  for (float value : {kInf, kNaN}) {
    Run(kLog, {{"x", Rows({1, 2, 3, 4, 5, value})}});
    EXPECT_EQ(found().source, NotFiniteOrigin::Source::kInput);
    EXPECT_EQ(found().result.name, "x");
    EXPECT_EQ(found().sample, 2);
    EXPECT_EQ(found().is_nan, std::isnan(value));
    EXPECT_EQ(found().op, "Abs");  // which reads it
  }
}

constexpr char kState[] = R"(
input x: float[2,2]
param w: float[2,2] = {1,2,3,4}
y: float[2,2] = MatMul(x, w)
w2: float[2,2] = Mul(w, y)
output y
update w = w2
)";

TEST_F(NotFiniteWatchTest, NamesStateAndNextState) {
  Run(kState, {{"x", Rows({1, 2, 3, 4})}}, {{"w", Rows({1, kInf, 3, 4})}});
  EXPECT_EQ(found().source, NotFiniteOrigin::Source::kState);
  EXPECT_EQ(found().result.name, "w");
  EXPECT_EQ(found().sample, -1);
  Run(kState, {{"x", Rows({1e19f, 0, 0, 1e19f})}},
      {{"w", Rows({1e19f, 1, 1, 1e19f})}});
  EXPECT_EQ(found().op, "Mul");
  EXPECT_EQ(found().layer, "w");
}

// The gradient of a step before is none of the nodes that make new state.
TEST_F(NotFiniteWatchTest, OfStateWatchesUpdatesAlone) {
  graph_ = ParseGraph(R"(
input x: float[2]
param w: float[2] = {1,2}
l: float[2] = Log(x)
e: float[2] = Exp(l)
w2: float[2] = Mul(w, e)
output l
update w = w2
)");
  auto provider = MakeCpuProvider();
  Executor executor(graph_, *provider);
  NotFiniteWatch watch;
  executor.set_observer(&watch);
  TensorMap state;
  const auto run = [&](std::vector<float> x) {
    executor.Run({{"x", Tensor::From<float>({2}, x)}}, state);
  };
  run({0, 1});
  EXPECT_FALSE(watch.found());
  run({2, 1e38f});
  EXPECT_FALSE(watch.found());
  run({2, 1e38f});
  ASSERT_TRUE(watch.found());
  EXPECT_EQ(watch.found()->op, "Mul");
  EXPECT_EQ(watch.found()->index, std::vector<int64_t>{1});
}

// An Inf of the batch of which NaN is made counts before a later node's.
TEST_F(NotFiniteWatchTest, AnInputThatBecomesNaNIsAFault) {
  Run(R"(
input x: float[2,2]
const c: float[2] = {0,1}
d: float[2,2] = Sub(x, x)
l: float[2] = Log(c)
output d
output l
)",
      {{"x", Rows({1, 2, kInf, 4})}});
  EXPECT_EQ(found().source, NotFiniteOrigin::Source::kInput);
  EXPECT_EQ(found().sample, 1);
}

// A masked row of scores: -Inf is meant, and NaN is not.
constexpr char kMask[] = R"(
input x: float[2,2]
const m: float[2,2] = {0,MASK,MASK,MASK}
s: float[2,2] = Add(x, m)
p: float[2,2] = Softmax<axis=-1>(s)
output p
)";

TEST_F(NotFiniteWatchTest, AMaskIsNoFault) {
  const auto with = [](std::string second, std::string third) {
    std::string text = kMask;
    for (const std::string& number : {std::string("-inf"), second, third}) {
      text.replace(text.find("MASK"), 4, number);
    }
    return text;
  };
  Run(with("-inf", "0"), {{"x", Rows({1, 2, 3, 4})}});
  EXPECT_FALSE(watch_->found());
  Run(with("-inf", "-inf"), {{"x", Rows({1, 2, 3, 4})}});
  EXPECT_EQ(found().op, "Softmax");
  EXPECT_TRUE(found().is_nan);
  EXPECT_EQ(found().sample, 1);
}

// Rows of a product follow the samples; those of its weight's gradient do not.
constexpr char kProducts[] = R"(
input x: float[2,2]
const w: float[2,2] = {1,2,3,4}
t: float[2,2] = Transpose<perm=[1,0]>(x)
OUT
output y
)";

TEST_F(NotFiniteWatchTest, KnowsTheSampleOfAProduct) {
  const auto with = [](const std::string& node) {
    std::string text = kProducts;
    return text.replace(text.find("OUT"), 3, node);
  };
  const TensorMap feeds = {{"x", Rows({1, 1, 3e38f, 3e38f})}};
  Run(with("y: float[2,2] = MatMul(x, w)"), feeds);
  EXPECT_EQ(found().sample, 1);
  Run(with("y: float[2,2] = Gemm(x, w)"), feeds);
  EXPECT_EQ(found().sample, 1);
  Run(with("y: float[2,2] = Gemm<transA=1>(x, w)"), feeds);
  EXPECT_EQ(found().sample, -1);
  Run(with("y: float[2,2] = MatMul(t, w)"), feeds);
  EXPECT_EQ(found().sample, -1);
}

// A view does not run, and passes on what it views.
TEST_F(NotFiniteWatchTest, LooksThroughViews) {
  Run(R"(
input x: float[2,2]
const shape: int64[1] = {4}
r: float[4] = Reshape(x, shape)
l: float[4] = Log(r)
output l
)",
      {{"x", Rows({1, 2, 3, 0})}});
  EXPECT_EQ(found().op, "Log");
  EXPECT_EQ(found().sample, 1);
  EXPECT_EQ(found().index, std::vector<int64_t>{3});
}

}  // namespace
}  // namespace onnx_fp8
