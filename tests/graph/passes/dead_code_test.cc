// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/dead_code.h"

#include <gtest/gtest.h>

#include "graph/onnx/verify.h"
#include "graph/print.h"
#include "tests/graph/parse.h"

namespace onnx_fp8 {
namespace {

TEST(RemoveDeadCode, KeepsWhatOutputsAndStateNeed) {
  auto graph = ParseGraph(R"(graph "g" opset 24
input x: float[2]
input unused: float[2]
input const lr: float[2] = {1.0,2.0}
const c: float[2] = {1.0,2.0}
const dead_c: float[2] = {1.0,2.0}
param w: float[2]
param bound: float[2]
param dead_w: float[2]
frozen dead_f: float[2]
state s: float[2]
dead_a: float[2] = Mul(x, dead_c)
a: float[2] = Mul(x, w)
dead_b: float[2] = Mul(dead_a, a)
next: float[2] = Mul(bound, c)
y: float[1], z: float[1] = Split<num_outputs=2>(a)
dead_d: float[2] = Mul(dead_b, dead_w)
output y
update bound = next
)");
  RemoveDeadCode(*graph);
  EXPECT_EQ(Print(*graph), R"(graph "g" opset 24
input x: float[2]
input unused: float[2]
input const lr: float[2] = {1.0,2.0}
const c: float[2] = {1.0,2.0}
param w: float[2]
param bound: float[2]
state s: float[2]
a: float[2] = Mul(x, w)
next: float[2] = Mul(bound, c)
y: float[1], z: float[1] = Split<num_outputs=2>(a)
output y
update bound = next
)");
  Verify(*graph);
}

TEST(RemoveDeadCode, AnUnsortedGraph) {
  auto graph = ParseGraph(
      "input x: float[2]\na: float[2] = Neg(x)\nb: float[2] = Neg(a)\n"
      "output x");
  graph->nodes().reverse();
  RemoveDeadCode(*graph);
  EXPECT_TRUE(graph->nodes().empty());
  EXPECT_TRUE(graph->Find("x")->uses.empty());
}

// An If inside an If, which reads `a` and an initializer by name; `shadow` is a
// value that the inner graph itself defines.
TEST(RemoveDeadCode, WhatSubgraphsReadAtAnyDepth) {
  auto inner = std::make_shared<Graph>();
  inner->AddNode("Add", {inner->AddCaptured("a"), inner->AddCaptured("c")},
                 {"sum"});
  inner->AddNode("Neg", {inner->AddCaptured("shadow")}, {"n"});
  inner->outputs.push_back(inner->Find("sum"));
  auto outer = std::make_shared<Graph>();
  outer->AddInitializer("shadow", Tensor::Scalar(1.0f));
  outer->AddNode("If", {}, {"r"}, {{"then_branch", inner}});
  outer->outputs.push_back(outer->Find("r"));
  auto graph = ParseGraph(R"(
input x: float[2]
const c: float[2]
const shadow: float[2]
const dead: float[2]
a: float[2] = Neg(x)
b: float[2] = Neg(a)
)");
  graph->AddNode("If", {}, {"y"}, {{"then_branch", outer}});
  graph->outputs.push_back(graph->Find("y"));
  RemoveDeadCode(*graph);
  EXPECT_NE(graph->Find("a"), nullptr);
  EXPECT_NE(graph->Find("c"), nullptr);
  EXPECT_EQ(graph->Find("b"), nullptr);
  EXPECT_EQ(graph->Find("shadow"), nullptr);
  EXPECT_EQ(graph->Find("dead"), nullptr);
  Verify(*graph);
}

TEST(Graph, SortPutsWhatASubgraphReadsBeforeIt) {
  auto inner = std::make_shared<Graph>();
  inner->AddNode("Neg", {inner->AddCaptured("a")}, {"n"});
  auto outer = std::make_shared<Graph>();
  outer->AddNode("If", {}, {"r"}, {{"then_branch", inner}});
  auto graph = ParseGraph("input x: float[2]");
  graph->AddNode("If", {}, {"y"}, {{"then_branch", outer}});
  graph->AddNode("Neg", {graph->Find("x")}, {"a"});
  graph->Sort();
  EXPECT_EQ(graph->nodes().front().op, "Neg");
}

}  // namespace
}  // namespace onnx_fp8
