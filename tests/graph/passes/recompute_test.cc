// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/recompute.h"

#include <gtest/gtest.h>

#include "base/check.h"
#include "graph/onnx/verify.h"
#include "graph/passes/dead_code.h"
#include "graph/print.h"
#include "tests/graph/parse.h"

namespace onnx_fp8 {
namespace {

// h = x w, r = relu(h), y = r v; the backward reads h, r, and the copies of v.
constexpr char kStepText[] = R"(graph "g" opset 24
input x: float[2,3]
input g: float[2,4]
param w: float[3,5]
param v: float[5,4]
vt: float[4,5] = Transpose<perm=[1,0]>(v)
h: float[2,5] = MatMul(x, w)
r: float[2,5] = Relu(h)
vb: float[5,4] = Transpose<perm=[1,0]>(vt)
y: float[2,4] = MatMul(r, vb)
seed: float[2,4] = Mul(g, y)
rt: float[5,2] = Transpose<perm=[1,0]>(r)
dv: float[5,4] = MatMul(rt, seed)
dr: float[2,5] = MatMul(seed, vt)
dh: float[2,5] = Mul(dr, h)
output y
output dv
output dh
)";

std::unordered_set<Node*> NodesNamed(Graph& graph,
                                     const std::vector<std::string>& names) {
  std::unordered_set<Node*> nodes;
  for (const std::string& name : names) {
    nodes.insert(graph.Find(name)->producer);
  }
  return nodes;
}

std::string Recomputed(const std::vector<std::string>& names) {
  auto graph = ParseGraph(kStepText);
  StepHalves halves(*graph, graph->Find("g"));
  EXPECT_EQ(halves.forward.size(), 5u);
  RecomputeInBackward(*graph, NodesNamed(*graph, names), &halves.backward);
  Verify(*graph);
  std::string text = Print(*graph);
  return text.substr(text.find("vt:"));
}

TEST(RecomputeInBackward, ClonesStandBeforeTheirFirstReader) {
  EXPECT_EQ(Recomputed({"h", "r"}),
            R"(vt: float[4,5] = Transpose<perm=[1,0]>(v)
h: float[2,5] = MatMul(x, w)
r: float[2,5] = Relu(h)
vb: float[5,4] = Transpose<perm=[1,0]>(vt)
y: float[2,4] = MatMul(r, vb)
seed: float[2,4] = Mul(g, y)
h.again: float[2,5] = MatMul(x, w)
r.again: float[2,5] = Relu(h.again)
rt: float[5,2] = Transpose<perm=[1,0]>(r.again)
dv: float[5,4] = MatMul(rt, seed)
dr: float[2,5] = MatMul(seed, vt)
dh: float[2,5] = Mul(dr, h.again)
output y
output dv
output dh
)");
}

TEST(RecomputeInBackward, ACloneReadsWhatIsKept) {
  const std::string text = Recomputed({"r"});
  EXPECT_NE(text.find("r.again: float[2,5] = Relu(h)\n"), std::string::npos);
  EXPECT_NE(text.find("= Mul(dr, h)\n"), std::string::npos) << text;
}

TEST(RecomputeInBackward, WhatOnlyTheForwardReadsStaysAlone) {
  EXPECT_EQ(Recomputed({"vb"}).find("again"), std::string::npos);
}

TEST(RecomputeInBackward, WhatOnlyTheBackwardReadsMovesThere) {
  auto graph = ParseGraph(R"(graph "g" opset 24
input x: float[2,3]
input g: float[2,3]
e: float[2,3] = Exp(x)
y: float[2,3] = Relu(x)
dy: float[2,3] = Mul(g, y)
dx: float[2,3] = Mul(dy, e)
output dx
)");
  StepHalves halves(*graph, graph->Find("g"));
  RecomputeInBackward(*graph, NodesNamed(*graph, {"e"}), &halves.backward);
  EXPECT_TRUE(halves.backward.contains(graph->Find("e")->producer));
  EXPECT_EQ(Print(*graph), R"(graph "g" opset 24
input x: float[2,3]
input g: float[2,3]
y: float[2,3] = Relu(x)
dy: float[2,3] = Mul(g, y)
e: float[2,3] = Exp(x)
dx: float[2,3] = Mul(dy, e)
output dx
)");
}

// The amax of the step is the forward's.
TEST(RecomputeInBackward, ACloneMeasuresNoAmax) {
  auto graph = ParseGraph(R"(graph "g" opset 24
input x: float[2,3]
input g: float[2,2]
param w: float[3,2]
wq: float8e4m3fn[3,2], ws: float[], wa: float[] = onnx_fp8.QuantizeTensor<q_max=448.0, to=17>(w)
xq: float8e4m3fn[2,3], xs: float[], xa: float[] = onnx_fp8.QuantizeTensor<q_max=448.0, to=17>(x)
y: float[2,2] = onnx_fp8.ScaledMatMul<transA=0, transB=0>(xq, xs, wq, ws)
gq: float8e4m3fn[2,2], gs: float[], ga: float[] = onnx_fp8.QuantizeTensor<q_max=448.0, to=17>(g)
dx: float[2,3] = onnx_fp8.ScaledMatMul<transA=0, transB=1>(gq, gs, wq, ws)
output y
output dx
output wa
)");
  StepHalves halves(*graph, graph->Find("g"));
  RecomputeInBackward(*graph, NodesNamed(*graph, {"wq"}), &halves.backward);
  Verify(*graph);
  const std::string text = Print(*graph);
  EXPECT_NE(text.find("wq.again: float8e4m3fn[3,2], ws.again: float[], _ = "),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("(gq, gs, wq.again, ws.again)"), std::string::npos);
}

RecomputeChoice Choose(Graph& graph, const RecomputeSpec& spec) {
  return ChooseRecomputed(spec, graph,
                          StepHalves(graph, graph.Find("g")).forward);
}

TEST(ChooseRecomputed, ModulesThatMatchAGlob) {
  auto graph = ParseGraph(kStepText);
  graph->Find("h")->producer->name = "/m.fc/MatMul";
  graph->Find("r")->producer->name = "/m.act/Relu";
  graph->Find("y")->producer->name = "/head/MatMul";
  EXPECT_EQ(Choose(*graph, {{"m.*"}}).nodes, NodesNamed(*graph, {"h", "r"}));
  // With the copies of its weight.
  EXPECT_EQ(Choose(*graph, {{"head"}}).nodes,
            NodesNamed(*graph, {"y", "vb", "vt"}));
  EXPECT_EQ(Choose(*graph, {{"head"}, false}).nodes, NodesNamed(*graph, {"y"}));
  EXPECT_EQ(Choose(*graph, {{"none"}}).nodes.size(), 0u);
  EXPECT_EQ(Choose(*graph, {}).text, "");
  EXPECT_EQ(Choose(*graph, {{"m.*", "head"}, false}).text,
            "`recompute`: the modules that match; 3 of 5 nodes of the forward "
            "run again in the backward");
  EXPECT_THROW(Choose(*graph, {{"m.*", "tail"}}), Error);
}

// Attention reads its operands through views of its own, here without a module
// or in another one. They would keep the products in memory.
TEST(ChooseRecomputed, ViewsOfResultsThatRunAgain) {
  auto graph = ParseGraph(R"(graph "g" opset 24
input x: float[2,4]
input g: float[2,2,2]
param w: float[4,4]
param v: float[4,4]
const shape: int64[3] = {2,2,2}
const first: int64[1] = {0}
q: float[2,4] = MatMul(x, w)
qr: float[2,2,2] = Reshape(q, shape)
qu: float[1,2,2,2] = Unsqueeze(qr, first)
qi: float[1,2,2,2] = Identity(qu)
qs: float[2,2,2] = Squeeze(qi, first)
qf: float[2,4] = Flatten<axis=1>(qs)
qt: float[2,2,2] = Transpose<perm=[0,2,1]>(qr)
qn: float[2,4] = Neg(qf)
k: float[2,4] = MatMul(x, v)
kr: float[2,2,2] = Reshape(k, shape)
s: float[2,2,2] = Mul(qt, kr)
ds: float[2,2,2] = Mul(g, s)
dk: float[2,2,2] = Mul(ds, qt)
dq: float[2,2,2] = Mul(ds, kr)
dx: float[2,4] = Flatten<axis=1>(dq)
dn: float[2,4] = Mul(dx, qf)
dm: float[2,4] = Mul(dn, qn)
output dk
output dm
)");
  graph->Find("q")->producer->name = "/attn.q/MatMul";
  graph->Find("k")->producer->name = "/attn.k/MatMul";
  graph->Find("qr")->producer->name = "/attn/Reshape";
  const auto views = NodesNamed(*graph, {"q", "qr", "qu", "qi", "qs", "qf"});
  EXPECT_EQ(Choose(*graph, {{"attn.q"}}).nodes, views);
  // A view that the user names does not make its product run again.
  EXPECT_EQ(Choose(*graph, {{"attn"}}).nodes,
            NodesNamed(*graph, {"qr", "qu", "qi", "qs", "qf"}));
  StepHalves halves(*graph, graph->Find("g"));
  RecomputeInBackward(*graph, views, &halves.backward);
  Verify(*graph);
  const std::string text = Print(*graph);
  EXPECT_NE(text.find("qf.again: float[2,4] = Flatten<axis=1>(qs.again)\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("qr.again: float[2,2,2] = Reshape(q.again, shape)"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("= Mul(dx, qf.again)\n"), std::string::npos) << text;
}

// Codes that live from step to step are no copies that the step makes, but the
// rounded weight is.
TEST(ChooseRecomputed, NoCodesThatAreThereAnyway) {
  auto graph = ParseGraph(R"(graph "g" opset 24
input x: float[2,3]
input g: float[2,2]
param w: float[3,2]
wr: float[3,2] = onnx_fp8.RoundTo<to=16>(w)
wq: float8e4m3fn[3,2], ws: float[] = onnx_fp8.QuantizeTensor<q_max=448.0, to=17>(wr)
xq: float8e4m3fn[2,3], xs: float[] = onnx_fp8.QuantizeTensor<q_max=448.0, to=17>(x)
y: float[2,2] = onnx_fp8.ScaledMatMul<transA=0, transB=0>(xq, xs, wq, ws)
z: float[2,2] = MatMul(x, wr)
dy: float[2,2] = Mul(g, y)
dz: float[2,2] = Mul(g, z)
output dy
output dz
)");
  graph->Find("y")->producer->name = "/layer/y";
  graph->Find("z")->producer->name = "/layer/z";
  const auto nodes = [&](bool codes) {
    return Choose(*graph, {{"layer"}, true, codes}).nodes;
  };
  EXPECT_EQ(nodes(true), NodesNamed(*graph, {"y", "z", "wq", "wr"}));
  EXPECT_EQ(nodes(false), NodesNamed(*graph, {"y", "z", "wr"}));
  StepHalves halves(*graph, graph->Find("g"));
  const auto may = NodesThatMayRunAgain(halves.forward, true, false);
  EXPECT_FALSE(may.contains(graph->Find("wq")->producer));
  EXPECT_TRUE(may.contains(graph->Find("wr")->producer));
}

// A decoded weight has one reader. Otherwise it would live until that runs
// again.
TEST(ChooseRecomputed, DecodedWeightsRunAgainWithTheirReader) {
  auto graph = ParseGraph(R"(graph "g" opset 24
input x: float[2,3]
input g: float[2,2]
param w: bfloat16[3,3]
correction c: int8[3,3]
param v: bfloat16[3,2]
wf: float[3,3] = onnx_fp8.DecodeMaster<correction=3>(w, c)
h: float[2,3] = MatMul(x, wf)
vf: float[3,2] = Cast<to=1>(v)
y: float[2,2] = MatMul(h, vf)
dy: float[2,2] = Mul(g, y)
output dy
)");
  graph->Find("h")->producer->name = "/layer/h";
  graph->Find("y")->producer->name = "/layer/y";
  const auto all = NodesNamed(*graph, {"h", "y", "wf", "vf"});
  const StepHalves halves(*graph, graph->Find("g"));
  for (bool copies : {false, true}) {
    EXPECT_EQ(Choose(*graph, {{"layer"}, copies}).nodes, all);
    EXPECT_EQ(NodesThatMayRunAgain(halves.forward, copies), all);
  }
}

// Masks cost little and are shared by all layers; what is drawn stays drawn.
TEST(ChooseRecomputed, NoMasksNoRandomNumbersNoCollectives) {
  auto graph = ParseGraph(R"(graph "g" opset 24
input x: float[2,3]
input g: float[2,3]
param w: float[3]
const ratio: float[] = {0.5}
const on: bool[] = {1}
m: float[2,3] = Sign(x)
a: float[2,3] = Mul(x, w)
b: float[2,3] = onnx_fp8.AllReduce<group="tp", ranks=2, reduction="sum">(a)
c: float[2,3], mask: bool[2,3] = Dropout(b, ratio, on)
y: float[2,3] = Mul(c, m)
dy: float[2,3] = Mul(g, y)
output dy
)");
  for (Node& node : graph->nodes()) node.name = "/layer/" + node.op;
  EXPECT_EQ(Choose(*graph, {{"layer"}}).nodes, NodesNamed(*graph, {"a", "y"}));
}

}  // namespace
}  // namespace onnx_fp8
