// SPDX-License-Identifier: Apache-2.0
//
// What training and inference make of BatchNormalization and Dropout.
#include <gtest/gtest.h>

#include "graph/passes/dead_code.h"
#include "graph/passes/inference_mode.h"
#include "graph/passes/running_statistics.h"
#include "graph/print.h"
#include "graph/verify.h"
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
t: float[3] = Neg(var)
output y
output t
)");
}

// Exports keep a Dropout of ratio 0, or of inference.
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
f: float[2,3], m: bool[2,3] = Dropout(e, none, on)
n: bool[2,3] = Not(m)
output f
output n
)");
}

TEST(BindRunningStatistics, KeepsThemWhereTheStepIsNotOk) {
  auto graph = ParseGraph(kModel);
  BindRunningStatistics(*graph, graph->Find("ok"));
  Verify(*graph);
  ASSERT_EQ(graph->state.size(), 2u);
  const char* states[] = {"mean", "var"};
  const char* updated[] = {"m", "v"};
  for (size_t i : {0, 1}) {
    const StateBinding& binding = graph->state[i];
    EXPECT_EQ(binding.state->name, states[i]);
    const Node& where = *binding.next->producer;
    EXPECT_TRUE(where.Is("Where"));
    EXPECT_EQ(where.in(0)->name, "ok");
    EXPECT_EQ(where.in(1)->name, updated[i]);
    EXPECT_EQ(where.in(2)->name, states[i]);
  }
}

}  // namespace
}  // namespace onnx_fp8
