// SPDX-License-Identifier: Apache-2.0
#include "providers/passes/expand_missing.h"

#include <gtest/gtest.h>

#include "base/check.h"
#include "base/random.h"
#include "graph/onnx/verify.h"
#include "graph/print.h"
#include "providers/cpu/cpu_provider.h"
#include "providers/run/executor.h"
#include "tests/graph/parse.h"

namespace onnx_fp8 {
namespace {

constexpr char kText[] = R"(
input x: float[5,7]
y: float[5,7] = Neg(x)
q: float8e4m3fn[5,7], s: float[], a: float[] = onnx_fp8.QuantizeTensor<q_max=448.0, to=17>(y)
z: float[5,7] = Cast<to=1>(q)
output z
output s
output a
)";

TensorMap RunOnCpu(std::shared_ptr<const Graph> graph) {
  auto cpu = MakeCpuProvider();
  Tensor x = Tensor::Allocate(DType::kFloat, {5, 7});
  for (int64_t i = 0; i < x.size(); ++i) {
    x.data<float>()[i] = RandomUniform(1, static_cast<uint64_t>(i)) - 0.5f;
  }
  TensorMap state;
  return Executor(std::move(graph), *cpu).Run({{"x", x}}, state);
}

bool HasOp(const Graph& graph, std::string_view op) {
  for (const Node& node : graph.nodes()) {
    if (node.op == op) return true;
  }
  return false;
}

TEST(ExpandMissing, AForcedBodyGivesTheNumbersOfTheKernel) {
  for (const char* name : {"QuantizeTensor", "onnx_fp8.QuantizeTensor"}) {
    std::shared_ptr<Graph> fused = ParseGraph(kText);
    std::shared_ptr<Graph> expanded = ParseGraph(kText);
    auto evaluator = MakeCpuEvaluator();
    ExpandMissing(*expanded, CpuKernels(), {name}, evaluator.get());
    Verify(*expanded);
    ASSERT_TRUE(HasOp(*fused, "QuantizeTensor"));
    ASSERT_FALSE(HasOp(*expanded, "QuantizeTensor"));
    TensorMap a = RunOnCpu(fused), b = RunOnCpu(expanded);
    for (const char* output : {"z", "s", "a"}) {
      EXPECT_TRUE(Identical(a[output], b[output])) << output;
    }
  }
}

TEST(ExpandMissing, LeavesAloneWhatHasAKernel) {
  auto graph = ParseGraph(kText);
  std::string before = Print(*graph);
  ExpandMissing(*graph, CpuKernels());
  EXPECT_EQ(Print(*graph), before);
}

TEST(ExpandMissing, WhatHasNeitherIsLeftForThePlanToReport) {
  auto graph = ParseGraph(kText);
  KernelRegistry none;
  ExpandMissing(*graph, none);
  EXPECT_FALSE(HasOp(*graph, "QuantizeTensor"));
  EXPECT_TRUE(HasOp(*graph, "Neg"));
  try {
    MakePlan(*graph, none);
    FAIL();
  } catch (const Error& error) {
    std::string text = error.what();
    EXPECT_NE(text.find("; Neg: 1 node, [Neg -> y]"), std::string::npos)
        << text;
    EXPECT_NE(text.find("; Cast: "), std::string::npos) << text;
  }
}

TEST(ExpandMissing, LeavesWhatHasABodyToThePlanIfAsked) {
  auto graph = ParseGraph(kText);
  KernelRegistry none;
  ExpandMissing(*graph, none, {}, nullptr, {}, Missing::kLeave);
  try {
    MakePlan(*graph, none);
    FAIL();
  } catch (const Error& error) {
    std::string text = error.what();
    for (const char* op : {"Neg", "onnx_fp8.QuantizeTensor", "Cast"}) {
      EXPECT_NE(text.find(std::string(" ") + op + ": 1 node, ["),
                std::string::npos)
          << op << " in " << text;
    }
  }
  ExpandMissing(*graph, none, {"QuantizeTensor"}, nullptr, {}, Missing::kLeave);
  EXPECT_FALSE(HasOp(*graph, "QuantizeTensor"));
}

TEST(ExpandMissing, ForcedOpsMustHaveABody) {
  auto graph = ParseGraph(kText);
  for (const char* name : {"Typo", "Neg", "onnx_fp8.Neg", "onnx_fp8.", ""}) {
    EXPECT_THROW(ExpandMissing(*graph, CpuKernels(), {name}), Error) << name;
  }
  EXPECT_NO_THROW(ExpandMissing(*graph, CpuKernels(), {"Softmax"}));
}

}  // namespace
}  // namespace onnx_fp8
