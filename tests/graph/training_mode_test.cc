// SPDX-License-Identifier: Apache-2.0
//
// How training and inference treat BatchNormalization and Dropout.
#include <gtest/gtest.h>

#include "graph/onnx/verify.h"
#include "graph/passes/batch_norm_mode.h"
#include "graph/passes/dead_code.h"
#include "graph/passes/inference_mode.h"
#include "graph/passes/running_statistics.h"
#include "graph/print.h"
#include "tests/graph/parse.h"

namespace onnx_fp8 {
namespace {

constexpr char kModel[] = R"(graph "g" opset 24
input x: float[2,3]
input ok: bool[]
const ratio: float[] = {0.5}
const on: bool[] = {1}
param s: float[3]
param b: float[3]
state mean: float[3]
state var: float[3]
y: float[2,3], m: float[3], v: float[3] = BatchNormalization<training_mode=1>(x, s, b, mean, var)
d: float[2,3] = Dropout(y, ratio, on)
t: float[3] = Neg(v)
output d
output t
)";

TEST(InferenceMode, UsesTheStatisticsAndDropsNothing) {
  auto graph = ParseGraph(kModel);
  InferenceMode(*graph);
  RemoveDeadCode(*graph);
  Verify(*graph);
  EXPECT_EQ(Print(*graph), R"(graph "g" opset 24
input x: float[2,3]
input ok: bool[]
param s: float[3]
param b: float[3]
state mean: float[3]
state var: float[3]
y: float[2,3] = BatchNormalization<training_mode=0>(x, s, b, mean, var)
d: float[2,3] = Identity(y)
t: float[3] = Neg(var)
output d
output t
)");
}

// A user of an output asks for it by its name.
TEST(InferenceMode, OutputsKeepTheirNames) {
  auto graph = ParseGraph(R"(graph "g" opset 24
input x: float[2,3]
const ratio: float[] = {0.5}
const on: bool[] = {1}
param s: float[3]
param b: float[3]
state mean: float[3]
state var: float[3]
y: float[2,3], m: float[3], v: float[3] = BatchNormalization<training_mode=1>(x, s, b, mean, var)
d: float[2,3] = Dropout(y, ratio, on)
e: float[2,3] = Neg(d)
f: float[2,3], mask: bool[2,3] = Dropout(e, ratio, on)
output d
output f
output mask
output m
)");
  InferenceMode(*graph);
  RemoveDeadCode(*graph);
  Verify(*graph);
  EXPECT_EQ(Print(*graph), R"(graph "g" opset 24
input x: float[2,3]
const ratio: float[] = {0.5}
param s: float[3]
param b: float[3]
state mean: float[3]
state var: float[3]
m: float[3] = Identity(mean)
y: float[2,3] = BatchNormalization<training_mode=0>(x, s, b, mean, var)
d: float[2,3] = Identity(y)
e: float[2,3] = Neg(d)
f: float[2,3], mask: bool[2,3] = Dropout(e, ratio)
output d
output f
output mask
output m
)");
}

// Exports contain Dropouts of ratio 0, or of inference.
TEST(RemoveIdleDropout, KeepsThoseThatDrop) {
  auto graph = ParseGraph(R"(graph "g" opset 24
input x: float[2,3]
input maybe: bool[]
const none: float[] = {0}
const half: float[] = {0.5}
const on: bool[] = {1}
const off: bool[] = {0}
a: float[2,3] = Dropout(x, none, on)
b: float[2,3] = Dropout(a, half, off)
c: float[2,3] = Dropout(b, half)
d: float[2,3] = Dropout(c, half, on)
e: float[2,3] = Dropout(d, half, maybe)
f: float[2,3], m: bool[2,3] = Dropout(e, none, on)
n: bool[2,3] = Not(m)
output f
output n
)");
  RemoveIdleDropout(*graph);
  RemoveDeadCode(*graph);
  Verify(*graph);
  EXPECT_EQ(Print(*graph), R"(graph "g" opset 24
input x: float[2,3]
input maybe: bool[]
const none: float[] = {0.0}
const half: float[] = {0.5}
const on: bool[] = {1}
d: float[2,3] = Dropout(x, half, on)
e: float[2,3] = Dropout(d, half, maybe)
f: float[2,3], m: bool[2,3] = Dropout(e, none)
n: bool[2,3] = Not(m)
output f
output n
)");
}

constexpr char kExported[] = R"(graph "g" opset 24
input x: float[2,3]
param bn.weight: float[3]
param b: float[3]
const mean: float[3] = {0, 0, 0}
const var: float[3] = {1, 1, 1}
y: float[2,3] = BatchNormalization<training_mode=0>(x, bn.weight, b, mean, var)
z: float[2,3] = BatchNormalization<training_mode=1>(y, bn.weight, b, mean, var)
output z
)";

std::vector<int64_t> Modes(const Graph& graph) {
  std::vector<int64_t> modes;
  for (const Node& node : graph.nodes()) {
    modes.push_back(node.Int("training_mode", 0));
  }
  return modes;
}

TEST(SetBatchNormMode, NamesTheLayersOfInference) {
  auto graph = ParseGraph(kExported);
  std::string note = SetBatchNormMode(*graph, BatchNormMode::kAsExported);
  EXPECT_NE(note.find("statistics in bn, as exported"), std::string::npos)
      << note;
  EXPECT_NE(note.find("`batch_norm=train`"), std::string::npos) << note;
  EXPECT_EQ(Modes(*graph), (std::vector<int64_t>{0, 1}));
}

TEST(SetBatchNormMode, TurnsAllToOneMode) {
  auto graph = ParseGraph(kExported);
  EXPECT_EQ(SetBatchNormMode(*graph, BatchNormMode::kTrain), "");
  EXPECT_EQ(Modes(*graph), (std::vector<int64_t>{1, 1}));
  for (const Node& node : graph->nodes()) {
    EXPECT_EQ(node.outputs().size(), 3u);  // as ONNX wants it
  }
  EXPECT_EQ(SetBatchNormMode(*graph, BatchNormMode::kEval), "");
  EXPECT_EQ(Modes(*graph), (std::vector<int64_t>{0, 0}));
}

TEST(SetBatchNormMode, SaysThatThereIsNoneToTrain) {
  auto graph =
      ParseGraph("graph \"g\" opset 24\ninput x: float[2]\noutput x\n");
  EXPECT_EQ(SetBatchNormMode(*graph, BatchNormMode::kEval), "");
  EXPECT_NE(SetBatchNormMode(*graph, BatchNormMode::kTrain), "");
}

TEST(BindRunningStatistics, MovesThemAsPyTorchDoesIfTheStepIsOk) {
  auto graph = ParseGraph(kModel);
  BindRunningStatistics(*graph, graph->Find("ok"));
  Verify(*graph);
  graph->outputs.clear();
  for (const StateBinding& binding : graph->state) {
    graph->outputs.push_back(binding.next);
  }
  RemoveDeadCode(*graph);
  EXPECT_EQ(Print(*graph), R"(graph "g" opset 24
input x: float[2,3]
input ok: bool[]
param s: float[3]
param b: float[3]
state mean: float[3]
state var: float[3]
const "const.float 0.89999997615814209": float[] = {0.9}
const "const.float 1": float[] = {1.0}
y: float[2,3], m: float[3], v: float[3] = BatchNormalization<training_mode=1>(x, s, b, mean, var)
statistics.Mul: float[3] = Mul(var, "const.float 0.89999997615814209")
statistics.Sub: float[3] = Sub(v, statistics.Mul)
statistics.Mul_1: float[3] = Mul(statistics.Sub, "const.float 1")
statistics.Add: float[3] = Add(v, statistics.Mul_1)
statistics.Where: float[3] = Where(ok, m, mean)
statistics.Where_1: float[3] = Where(ok, statistics.Add, var)
output statistics.Where
output statistics.Where_1
update mean = statistics.Where
update var = statistics.Where_1
)");
}

TEST(BindRunningStatistics, ALayerThatRunsTwiceMovesThemTwice) {
  auto graph = ParseGraph(R"(graph "g" opset 24
input x: float[2,3]
input ok: bool[]
param s: float[3]
param b: float[3]
state mean: float[3]
state var: float[3]
y: float[2,3] = BatchNormalization<training_mode=1>(x, s, b, mean, var)
z: float[2,3] = BatchNormalization<training_mode=1>(y, s, b, mean, var)
output z
)");
  BindRunningStatistics(*graph, graph->Find("ok"));
  graph->Sort();
  Verify(*graph);
  const Node& first = *graph->Find("y")->producer;
  const Node& second = *graph->Find("z")->producer;
  EXPECT_EQ(second.in(3), first.out(1));
  EXPECT_EQ(second.in(4)->producer->in(0), first.out(2));
  ASSERT_EQ(graph->state.size(), 2u);
  EXPECT_EQ(graph->state[0].next->producer->in(1), second.out(1));
  EXPECT_EQ(graph->state[1].next->producer->in(1)->producer->in(0),
            second.out(2));
}

}  // namespace
}  // namespace onnx_fp8
