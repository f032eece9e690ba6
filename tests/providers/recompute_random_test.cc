// SPDX-License-Identifier: Apache-2.0
//
// Random graphs whose second part computes again what ChooseToFit chooses:
// results keep their bits.
#include <gtest/gtest.h>

#include "graph/onnx/verify.h"
#include "graph/passes/recompute.h"
#include "graph/passes/recompute_auto.h"
#include "graph/print.h"
#include "tests/providers/toy.h"

namespace onnx_fp8 {
namespace {

// A value that divides the graph into a forward and a backward; null: none
// does.
const Value* MiddleOf(const Graph& graph) {
  size_t place = 0;
  for (const Node& node : graph.nodes()) {
    const Value* value = node.out(0);
    if (++place > graph.nodes().size() / 3 && value && !value->uses.empty()) {
      return value;
    }
  }
  return nullptr;
}

TensorMap FeedsOf(const Graph& graph, uint64_t seed) {
  TensorMap feeds;
  for (const Value* value : graph.inputs) {
    feeds[value->name] = RandomTensor(value->dtype, *value->shape, seed++);
  }
  return feeds;
}

void ExpectSameBits(const TensorMap& got, const TensorMap& expected) {
  for (const auto& [name, tensor] : expected) {
    const auto known = got.find(name);
    if (known == got.end()) continue;  // state that is bound to itself
    EXPECT_TRUE(Identical(known->second, tensor)) << name;
  }
}

TEST(RecomputeAuto, KeepsTheBitsOfRandomGraphsAtFiveBudgets) {
  const auto provider = MakeToyProvider();
  size_t shrunk = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const int nodes = 4 + static_cast<int>(seed % 40);
    for (size_t share : {0, 25, 50, 75, 100}) {
      std::shared_ptr<Graph> graph = RandomGraph(seed, nodes);
      const Value* middle = MiddleOf(*graph);
      if (!middle) continue;
      SCOPED_TRACE(Print(*graph));
      TensorMap expected_state;
      const TensorMap expected = RunNaively(
          *graph, provider->Kernels(), FeedsOf(*graph, seed), expected_state);
      StepHalves halves(*graph, middle);
      RecomputeProblem problem;
      problem.graph = graph.get();
      problem.forward = halves.forward;
      problem.may = {halves.forward.begin(), halves.forward.end()};
      problem.costs = {[](const Value& value) { return BytesOf(value); },
                       [](const Node&) { return 1.0; }};
      const size_t budget = PeakWith(problem, {}) * share / 100;
      const AutoRecompute found = ChooseToFit(problem, budget);
      EXPECT_LE(found.after, found.before);
      EXPECT_TRUE(share < 100 || found.nodes.empty());
      shrunk += found.after < found.before;
      RecomputeInBackward(*graph, found.nodes, &halves.backward);
      Executor executor(graph, *provider);
      TensorMap state;
      const TensorMap outputs = executor.Run(FeedsOf(*graph, seed), state);
      EXPECT_EQ(outputs.size(), expected.size());
      ExpectSameBits(outputs, expected);
      ExpectSameBits(state, expected_state);
    }
  }
  EXPECT_GT(shrunk, 10u);
}

}  // namespace
}  // namespace onnx_fp8
