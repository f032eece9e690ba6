// SPDX-License-Identifier: Apache-2.0
//
// The bodies of ops that quantize their results, beside the ops that they call.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "graph/onnx/infer_shapes.h"
#include "graph/print.h"
#include "providers/cpu/cpu_provider.h"
#include "providers/passes/expand_missing.h"
#include "providers/passes/fuse_quantize.h"
#include "providers/run/executor.h"
#include "tests/providers/cpu/random_feeds.h"
#include "tests/providers/quantized_graph.h"

namespace onnx_fp8 {
namespace {

KernelRegistry WithFusedQuantizers() {
  KernelRegistry kernels = CpuKernels();
  for (const FusedQuantizer& row : FusedQuantizers()) {
    kernels.Add(
        row.op, [](KernelContext&) {}, {}, kDomain);
  }
  return kernels;
}

Node* NodeOf(Graph& graph, const std::string& op) {
  for (Node& node : graph.nodes()) {
    if (node.IsOurs(op)) return &node;
  }
  return nullptr;
}

TensorMap ByBodies(const std::shared_ptr<Graph>& graph,
                   const TensorMap& feeds) {
  auto evaluator = MakeCpuEvaluator();
  ExpandMissing(*graph, CpuKernels(), {}, evaluator.get());
  auto cpu = MakeCpuProvider();
  Executor executor(graph, *cpu);
  TensorMap state;
  return executor.Run(feeds, state);
}

// Two formulas of one function: they differ by a few ulp, so codes may differ
// by one step, which is an eighth of a number.
void ExpectWithinAStep(const Tensor& got, const Tensor& want,
                       const std::string& what) {
  double bound = IsFloat8(want.dtype()) ? 0.125 : 2e-6;
  for (int64_t i = 0; i < want.size(); ++i) {
    double x = DoubleAt(want, i);
    ASSERT_NEAR(DoubleAt(got, i), x, bound * std::max(std::fabs(x), 0.02))
        << what;
  }
}

class FusedQuantizeBody : public testing::TestWithParam<std::string> {};

TEST_P(FusedQuantizeBody, ComputesWhatTheOpsApartCompute) {
  const FusedQuantizer& row = *FindFusedQuantizer(GetParam());
  for (bool read : {false, true}) {
    QuantizedForm form = {"2,6,20", "20", "2,6,1", "2,6,20",
                          "20,12",  read, read,    read};
    auto apart = QuantizedGraph(row, form), fused = QuantizedGraph(row, form);
    FuseQuantize(*fused, WithFusedQuantizers());
    Node* node = NodeOf(*fused, row.op);
    ASSERT_NE(node, nullptr);
    std::string text = Print(*fused);
    InferNode(*node, fused->opset);
    EXPECT_EQ(Print(*fused), text);
    for (float scale : {0.0f, 0.0078125f}) {
      TensorMap feeds = RandomFeeds(*apart, {});
      for (auto& [name, tensor] : feeds) {
        if (name.starts_with("given_")) tensor = Tensor::Scalar(scale);
      }
      TensorMap want = ByBodies(apart, feeds), got = ByBodies(fused, feeds);
      ASSERT_EQ(got.size(), want.size());
      for (const auto& [name, tensor] : want) {
        if (row.text.empty()) {
          EXPECT_TRUE(Identical(got.at(name), tensor)) << name;
        } else {
          ExpectWithinAStep(got.at(name), tensor, name);
        }
      }
    }
  }
}

std::vector<std::string> FusedQuantizerOps() {
  std::vector<std::string> ops;
  for (const FusedQuantizer& row : FusedQuantizers()) ops.push_back(row.op);
  return ops;
}

INSTANTIATE_TEST_SUITE_P(All, FusedQuantizeBody,
                         testing::ValuesIn(FusedQuantizerOps()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace onnx_fp8
