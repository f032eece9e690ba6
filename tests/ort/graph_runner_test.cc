// SPDX-License-Identifier: Apache-2.0
#include "providers/ort/graph_runner.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/check.h"
#include "tests/graph/parse.h"

namespace onnx_fp8 {
namespace {

Tensor Floats(const Shape& shape, float first) {
  Tensor t = Tensor::Allocate(DType::kFloat, shape);
  for (int64_t i = 0; i < t.size(); ++i) {
    t.data<float>()[i] = first + static_cast<float>(i);
  }
  return t;
}

// All results of one call.
std::vector<Tensor> Results(GraphRunner& runner,
                            const std::vector<Tensor>& feeds) {
  GraphRunner::Call call = runner.Prepare(feeds);
  std::vector<Tensor> results;
  for (size_t i = 0; i < call.num_results(); ++i) {
    results.push_back(Tensor::Allocate(call.dtype(i), call.shape(i)));
  }
  call.Run(results);
  return results;
}

constexpr char kSplitHeads[] = R"(
input x: float[n,4]
const heads: int64[2] = {2,2}
const first: int64[1] = {0}
const one: float = {1}
s: int64[2] = Shape(x)
n: int64[1] = Gather(s, first)
to: int64[3] = Concat<axis=0>(n, heads)
y: float[n,2,2] = Reshape(x, to)
z: float[n,2,2] = Add(y, one)
output z
output y
)";

TEST(GraphRunner, ShapesMayChangeFromCallToCall) {
  GraphRunner runner(ParseGraph(kSplitHeads));
  for (int64_t n : {3, 1, 0, 3}) {
    Tensor x = Floats({n, 4}, 5);
    std::vector<Tensor> results = Results(runner, {x});
    EXPECT_EQ(results[0].shape(), (Shape{n, 2, 2}));
    EXPECT_TRUE(Identical(results[0], Floats({n, 2, 2}, 6)));
    EXPECT_TRUE(Identical(results[1], x.Reshaped({n, 2, 2})));
  }
}

TEST(GraphRunner, MoreShapesThanItKeepsPlansFor) {
  GraphRunner runner(ParseGraph(kSplitHeads));
  for (int repeat = 0; repeat < 2; ++repeat) {
    for (int64_t n = 1; n <= 12; ++n) {
      EXPECT_TRUE(Identical(Results(runner, {Floats({n, 4}, 0)})[0],
                            Floats({n, 2, 2}, 1)));
    }
  }
}

TEST(GraphRunner, AnInputThatDecidesASizeIsNoFeedOfThePlan) {
  GraphRunner runner(ParseGraph(R"(
input n: int64
input x: int64
const zero: int64 = {0}
const one: int64 = {1}
r: int64[m] = Range(zero, n, one)
y: int64[m] = Add(r, x)
output y
)"));
  for (int64_t n : {3, 2, 3}) {
    std::vector<Tensor> results =
        Results(runner, {Tensor::Scalar(n), Tensor::Scalar(int64_t{7})});
    std::vector<int64_t> expected;
    for (int64_t i = 0; i < n; ++i) expected.push_back(7 + i);
    EXPECT_EQ(ToInts(results[0]), expected);
  }
}

TEST(GraphRunner, CallsOfThreadsDoNotMeet) {
  GraphRunner runner(ParseGraph(R"(
input x: float[n,n]
a: float[n,n] = MatMul(x, x)
b: float[n,n] = Relu(a)
y: float[n,n] = MatMul(b, x)
output y
)"));
  std::vector<Tensor> feeds, expected;
  for (int i = 0; i < 3; ++i) {
    feeds.push_back(Floats({16 + i % 2, 16 + i % 2}, static_cast<float>(i)));
    expected.push_back(Results(runner, {feeds.back()})[0]);
  }
  std::vector<std::thread> threads;
  std::vector<int> wrong(3, 0);
  for (size_t t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      for (int k = 0; k < 50; ++k) {
        wrong[t] += !Identical(Results(runner, {feeds[t]})[0], expected[t]);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(3, 0));
}

TEST(GraphRunner, TwoCallsAtOnceHaveExecutorsOfTheirOwn) {
  GraphRunner runner(ParseGraph(kSplitHeads));
  for (int repeat = 0; repeat < 2; ++repeat) {
    std::vector<Tensor> x = {Floats({2, 4}, 0)}, y = {Floats({2, 4}, 50)};
    GraphRunner::Call first = runner.Prepare(x), second = runner.Prepare(y);
    std::vector<Tensor> a = {Floats({2, 2, 2}, 0), Floats({2, 2, 2}, 0)};
    std::vector<Tensor> b = {Floats({2, 2, 2}, 0), Floats({2, 2, 2}, 0)};
    second.Run(b);
    first.Run(a);
    EXPECT_TRUE(Identical(a[0], Floats({2, 2, 2}, 1)));
    EXPECT_TRUE(Identical(b[0], Floats({2, 2, 2}, 51)));
  }
}

// A later call takes over the executor of a call that failed.
TEST(GraphRunner, ErrorsNameTheNodeAndLeaveNothingBehind) {
  GraphRunner runner(ParseGraph(R"(
input x: float[4]
input i: int64[1]
y: float[1] = Gather(x, i)
output y
)"));
  Tensor x = Floats({4}, 0);
  try {
    Results(runner, {x, Tensor::Ints({9})});
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("Gather"), std::string::npos);
  }
  EXPECT_EQ(Results(runner, {x, Tensor::Ints({2})})[0].data<float>()[0], 2);
  EXPECT_THROW(Results(runner, {x.Reshaped({2, 2}), Tensor::Ints({0})}), Error);
}

}  // namespace
}  // namespace onnx_fp8
