// SPDX-License-Identifier: Apache-2.0
#include "graph/fp8/dump_products.h"

#include <gtest/gtest.h>

#include <string>

#include "base/check.h"
#include "graph/fp8/fp8_rewrite.h"
#include "graph/onnx/verify.h"
#include "onnx_fp8/recipe_text.h"
#include "tests/graph/parse.h"

namespace onnx_fp8 {
namespace {

constexpr char kDumpedLayers[] = R"(
input x: float[2,3]
const seed: float[2,4]
param w: float[3,4]
param last: float[4,5]
y: float[2,4] = Gemm(x, w)
z: float[2,5] = MatMul(y, last)
dx: float[2,3] = Gemm<transB=1>(seed, w)
dw: float[3,4] = Gemm<transA=1>(x, seed)
output z
output dx
output dw
)";

struct Rewritten {
  std::shared_ptr<Graph> graph = ParseGraph(kDumpedLayers);
  Fp8Plan plan;
};

// As StepBuilder::Quantize leaves it.
Rewritten Rewrite(const char* recipe) {
  Rewritten made;
  Graph& graph = *made.graph;
  made.plan = Fp8Rewrite(graph, {ParseRecipe(recipe)}, graph.Find("seed"),
                         {{graph.Find("w"), graph.Find("dw")}});
  for (const GemmDecision& d : made.plan.decisions) {
    if (d.fp8 || d.gemm.role == GemmRole::kNone) continue;
    d.gemm.node->metadata["role"] = Name(d.gemm.role);
    d.gemm.node->metadata["fqn"] = d.fqn;
    NameOperands(d.gemm);
  }
  return made;
}

using Lines = std::vector<std::string>;

DumpSpec Spec(const Lines& layers, const Lines& what = {}) {
  return ParseDump(layers, {"1"}, what);
}

// "w dgrad weight: the value that an output has, of codes of that shape".
Lines Told(const Graph& graph, const std::vector<DumpedOutputs>& dumped) {
  Lines lines;
  for (const DumpedOutputs& made : dumped) {
    const auto source = [&](const std::string& name) {
      return name.empty() ? "-" : graph.Find(name)->producer->in(0)->name;
    };
    const DumpedTensor& t = made.label;
    lines.push_back(Concat(t.fqn, " ", t.gemm, " ", t.operand, ": ",
                           source(made.value), ", ",
                           made.codes.empty() ? "no codes" : "codes"));
    if (made.codes.empty()) continue;
    const Node* quantizer = graph.Find(made.codes)->producer->in(0)->producer;
    EXPECT_EQ(quantizer->out(0)->name, source(made.codes));
    EXPECT_EQ(quantizer->out(1)->name, source(made.scale));
    EXPECT_EQ(quantizer->Int("block_rows", 0), t.block_rows);
    EXPECT_EQ(quantizer->Int("block_columns", 0), t.block_columns);
  }
  return lines;
}

TEST(DumpProducts, NamesEachOperandAndEachResult) {
  for (const char* recipe : {"tensorwise", "rowwise", "blockwise"}) {
    const Rewritten made = Rewrite(recipe);
    Graph& graph = *made.graph;
    EXPECT_EQ(
        Told(graph, DumpProducts(graph, Spec({"*"}))),
        (Lines{"w forward input: x, codes", "w forward weight: w, codes",
               "w forward output: y, no codes", "last forward input: y, codes",
               "last forward weight: last, codes",
               "last forward output: z, no codes",
               "w dgrad grad_output: seed, codes", "w dgrad weight: w, codes",
               "w dgrad output: dx, no codes", "w wgrad input: x, codes",
               "w wgrad grad_output: seed, codes",
               "w wgrad output: dw, no codes"}))
        << recipe;
    Verify(graph);
  }
}

// Nodes that were there keep their order and their operands.
TEST(DumpProducts, AddsOutputsAlone) {
  for (const char* recipe : {"off", "tensorwise", "rowwise", "delayed"}) {
    const auto before = Rewrite(recipe).graph, graph = Rewrite(recipe).graph;
    DumpProducts(*graph, Spec({"*"}));
    Lines old_nodes, nodes;
    for (const Node& node : before->nodes()) old_nodes.push_back(node.op);
    for (const Node& node : graph->nodes()) {
      if (node.Is("Identity")) {
        EXPECT_TRUE(IsReturned(*graph, node.out(0)));
      } else {
        nodes.push_back(node.op);
      }
    }
    EXPECT_EQ(nodes, old_nodes) << recipe;
    for (size_t i = 0; i < before->outputs.size(); ++i) {
      EXPECT_EQ(graph->outputs[i]->name, before->outputs[i]->name);
    }
  }
}

TEST(DumpProducts, ProductsInHighPrecisionHaveNoCodes) {
  const Rewritten made = Rewrite("off");
  Graph& graph = *made.graph;
  EXPECT_EQ(
      Told(graph, DumpProducts(graph, Spec({"w"}, {"weight", "output"}))),
      (Lines{"w forward weight: w, no codes", "w forward output: y, no codes",
             "w dgrad weight: w, no codes", "w dgrad output: dx, no codes",
             "w wgrad output: dw, no codes"}));
}

// A copy that is quantized from another one stands for the first tensor.
TEST(DumpProducts, ValuesAreBeforeTheFirstCast) {
  const Rewritten made = Rewrite("rowwise,tr:requantize");
  Graph& graph = *made.graph;
  const Lines told = Told(graph, DumpProducts(graph, Spec({"w"}, {"input"})));
  EXPECT_EQ(told,
            (Lines{"w forward input: x, codes", "w wgrad input: x, codes"}));
}

TEST(DumpProducts, UsesAreCounted) {
  auto graph = ParseGraph(R"(
input x: float[2,3]
param w: float[3,3]
y: float[2,3] = MatMul(x, w)
z: float[2,3] = MatMul(y, w)
output z
)");
  Fp8Rewrite(*graph, {ParseRecipe("tensorwise")}, nullptr, {});
  const auto dumped = DumpProducts(*graph, Spec({"w"}, {"output"}));
  ASSERT_EQ(dumped.size(), 2u);
  EXPECT_EQ(dumped[0].label.use, 1);
  EXPECT_EQ(dumped[1].label.use, 2);
}

TEST(DumpProducts, AGlobMustMatchALayer) {
  const Rewritten made = Rewrite("tensorwise");
  CheckDumped(Spec({"l?st", "w"}), made.plan.decisions, "m.onnx");
  try {
    CheckDumped(Spec({"w", "*mlp*"}), made.plan.decisions, "m.onnx");
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()),
              "[m.onnx] `dump`: expected a linear layer that *mlp* matches, "
              "got last, w");
  }
}

}  // namespace
}  // namespace onnx_fp8
