// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "base/check.h"
#include "providers/run/executor.h"
#include "tests/graph/parse.h"
#include "tests/providers/toy.h"

namespace onnx_fp8 {
namespace {

Tensor Pair(std::vector<uint32_t> values) {
  return Tensor::From<uint32_t>({static_cast<int64_t>(values.size())}, values);
}

class RunIntoTest : public testing::Test {
 protected:
  explicit RunIntoTest(const std::string& text = kText)
      : graph_(ParseGraph(text)), executor_(graph_, *provider_) {}

  // Runs into `results`, and compares them with a run without a plan.
  void ExpectNaive(const std::vector<Tensor>& feeds,
                   std::vector<Tensor> results) {
    TensorMap named, state;
    for (size_t i = 0; i < feeds.size(); ++i) {
      named[graph_->inputs[i]->name] = feeds[i].Clone();
    }
    TensorMap expected =
        RunNaively(*graph_, provider_->Kernels(), named, state);
    executor_.RunInto(feeds, results);
    for (size_t i = 0; i < results.size(); ++i) {
      const std::string& name = graph_->outputs[i]->name;
      EXPECT_TRUE(Identical(results[i], expected.at(name))) << name;
    }
  }

  static constexpr char kText[] = R"(
input unused: uint32[2]
input x: uint32[2]
input z: uint32[2]
const c: uint32[2] = {1,2}
a: uint32[2] = Hash(x, c, z)
b: uint32[2] = Near(a, x)
flat: uint32[1,2] = View(b)
d: uint32[2] = Hash(b, a)
output b
output d
output x
output c
output flat
output d
)";
  std::unique_ptr<ExecutionProvider> provider_ = MakeToyProvider();
  std::shared_ptr<Graph> graph_;
  Executor executor_;
};

std::vector<Tensor> NewResults(const Graph& graph) {
  std::vector<Tensor> results;
  for (const Value* value : graph.outputs) {
    results.push_back(Tensor::Zeros(value->dtype, *value->shape));
  }
  return results;
}

// Results of kernels, views of them, constants, inputs, one value twice.
TEST_F(RunIntoTest, AllKindsOfOutputs) {
  for (uint32_t i = 0; i < 3; ++i) {
    ExpectNaive({Pair({0, 0}), Pair({i, 2}), Pair({3, i})},
                NewResults(*graph_));
  }
}

TEST_F(RunIntoTest, KernelsWriteTheCallersMemory) {
  std::vector<Tensor> results = NewResults(*graph_);
  std::vector<const void*> before;
  for (const Tensor& result : results) before.push_back(result.raw());
  executor_.RunInto(
      std::vector<Tensor>{Pair({0, 0}), Pair({1, 2}), Pair({3, 4})}, results);
  for (size_t i = 0; i < results.size(); ++i) {
    EXPECT_EQ(results[i].raw(), before[i]);
  }
}

// A result may take the place of an operand that later nodes still read.
TEST_F(RunIntoTest, ResultsInTheMemoryOfFeeds) {
  Tensor x = Pair({1, 2}), z = Pair({3, 4});
  std::vector<Tensor> results = NewResults(*graph_);
  results[0] = x;
  results[1] = z;
  results[2] = Pair({0, 0});
  ExpectNaive({Pair({0, 0}), x, z}, results);
}

TEST_F(RunIntoTest, TypesAreChecked) {
  std::vector<Tensor> results = NewResults(*graph_);
  std::vector<Tensor> feeds = {Pair({0, 0}), Pair({1, 2}), Pair({3, 4})};
  auto complaint = [&] {
    try {
      executor_.RunInto(feeds, results);
      return std::string();
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  results[1] = Pair({1, 2, 3});
  EXPECT_EQ(complaint(), "[output d] expected uint32[2], got uint32[3]");
  results[1] = Pair({1, 2});
  feeds[2] = Tensor::Ints({1, 2});
  EXPECT_EQ(complaint(), "[input z] expected uint32[2], got int64[2]");
  feeds[2] = Pair({1, 2});
  EXPECT_EQ(complaint(), "");
}

}  // namespace
}  // namespace onnx_fp8
