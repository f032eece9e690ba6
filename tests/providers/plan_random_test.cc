// SPDX-License-Identifier: Apache-2.0
//
// Random graphs: running the plan must give the same results as running every
// node on its own, and no two live values share memory.
#include <gtest/gtest.h>

#include <algorithm>

#include "graph/print.h"
#include "providers/plan/plan.h"
#include "tests/providers/toy.h"

namespace onnx_fp8 {
namespace {

TensorMap RandomFeeds(const Graph& graph, uint64_t seed) {
  TensorMap feeds;
  for (const Value* value : graph.inputs) {
    feeds[value->name] = RandomTensor(value->dtype, *value->shape, seed++);
  }
  return feeds;
}

TensorMap Clones(const TensorMap& map) {
  TensorMap clones;
  for (const auto& [name, tensor] : map) clones[name] = tensor.Clone();
  return clones;
}

// The first difference, "" if there is none.
std::string Difference(const TensorMap& got, const TensorMap& expected) {
  for (const auto& [name, tensor] : expected) {
    auto it = got.find(name);
    if (it == got.end()) return name + " is missing";
    if (!Identical(it->second, tensor)) return name + " differs";
  }
  return got.size() == expected.size() ? "" : "there is more than expected";
}

struct Seen {
  size_t in_place = 0, copied = 0, reused = 0, together = 0;
};

Seen RunGraphs(uint64_t count, ExecutionProvider& provider) {
  Seen seen;
  for (uint64_t seed = 0; seed < count; ++seed) {
    std::shared_ptr<Graph> graph =
        RandomGraph(seed, static_cast<int>(seed % 40));
    std::string text = Print(*graph);
    TensorMap constants;
    for (const Value* value : graph->Initializers()) {
      constants[value->name] = value->data.Clone();
    }
    Executor executor(graph, provider);
    const Plan& plan = executor.plan();
    CheckPlan(plan, *graph, provider.Kernels());
    EXPECT_LE(plan.live_bytes, plan.arena_bytes);
    EXPECT_LE(plan.arena_bytes, plan.naive_bytes);
    seen.reused += plan.arena_bytes < plan.naive_bytes;
    seen.copied += !plan.after.empty();
    seen.in_place += plan.first_write < plan.steps.size();
    seen.together += std::ranges::any_of(
        plan.steps, [](const Step& step) { return step.together > 1; });

    TensorMap state, naive_state, last, last_copy;
    for (uint64_t run = 0; run < 3; ++run) {
      TensorMap feeds = RandomFeeds(*graph, 100 * seed + 10 * run);
      TensorMap fed = Clones(feeds);
      TensorMap expected =
          RunNaively(*graph, provider.Kernels(), feeds, naive_state);
      TensorMap outputs = executor.Run(feeds, state);
      EXPECT_EQ(Difference(outputs, expected), "") << seed << "\n" << text;
      for (const StateBinding& binding : graph->state) {
        if (binding.state == binding.next) continue;
        const std::string& name = binding.state->name;
        if (!state.contains(name)) continue;  // bound to a view of itself
        EXPECT_TRUE(Identical(state.at(name), naive_state.at(name)))
            << seed << " " << name << "\n"
            << text;
      }
      EXPECT_EQ(Difference(feeds, fed), "") << seed << "\n" << text;
      EXPECT_EQ(Difference(last, last_copy), "") << seed << "\n" << text;
      last = outputs;
      last_copy = Clones(outputs);
    }
    for (const Value* value : graph->Initializers()) {
      EXPECT_TRUE(Identical(value->data, constants.at(value->name)))
          << seed << "\n"
          << text;
    }
  }
  return seen;
}

TEST(RandomGraphs, RunAsIfEveryValueHadItsOwnMemory) {
  Seen seen = RunGraphs(3000, *MakeToyProvider());
  // The cases that matter do occur.
  EXPECT_GT(seen.in_place, 1000u);
  EXPECT_GT(seen.copied, 1000u);
  EXPECT_GT(seen.reused, 1000u);
  EXPECT_EQ(seen.together, 0u);
}

TEST(RandomGraphs, RunAsIfNoNodesRanTogether) {
  Seen seen = RunGraphs(1000, *MakeToyProvider(true));
  EXPECT_GT(seen.in_place, 300u);
  EXPECT_GT(seen.reused, 300u);
  EXPECT_GT(seen.together, 300u);
}

TEST(RandomGraphs, FiftyThousandNodes) {
  auto provider = MakeToyProvider();
  auto graph = RandomGraph(7, 50000);
  Plan plan = MakePlan(*graph, provider->Kernels());
  CheckPlan(plan, *graph, provider->Kernels());
  EXPECT_GT(plan.steps.size(), 20000u);
  EXPECT_LT(plan.arena_bytes, plan.naive_bytes / 4);
}

}  // namespace
}  // namespace onnx_fp8
