// SPDX-License-Identifier: Apache-2.0
#include "training/step/store_masters.h"

#include <gtest/gtest.h>

#include "base/check.h"
#include "base/hash.h"
#include "graph/print.h"
#include "tests/graph/parse.h"

namespace onnx_fp8 {
namespace {

// A weight that two products, a rounding and its update read, in this order.
constexpr char kStepOfFloats[] = R"(graph "g" opset 24
param w: float[2,2]
const seed: int64[] = {3}
const number: int64[] = {4}
input x: float[2,2]
input ok: bool[]
const lr: float[] = {0.5}
a: float[2,2] = MatMul(x, w)
b: float[2,2] = MatMul(w, w)
r: float[2,2] = onnx_fp8.RoundTo<to=16>(w)
c: float[2,2] = MatMul(r, a)
s: float[2,2] = onnx_fp8.RoundTo<to=10>(w)
g: float[2,2] = Add(b, s)
w.next: float[2,2] = onnx_fp8.SGD<lr_scale=1.0, weight_decay=0.0>(w, g, lr, lr, ok)
e: float[2,2] = Neg(c)
update w = w.next
output e
)";

MasterStorage StorageFor(const Graph& graph, DType correction) {
  return {.correction = correction,
          .state_name = [](const std::string& hint) { return hint; },
          .places =
              [](const std::string&) {
                return ElementPlaces{
                    .shift = 1, .run = 2, .stride = 3, .begin = 4};
              },
          .seed = graph.Find("seed"),
          .number = graph.Find("number")};
}

// Lines of the graph's nodes and bindings, without names that the pass makes
// up.
std::string LinesOfNodes(const Graph& graph) {
  std::string text;
  for (const Node& node : graph.nodes()) {
    text += node.op + "(";
    for (size_t i = 0; i < node.inputs().size(); ++i) {
      const Value* in = node.in(i);
      text += (i > 0 ? " " : "") + (in->producer && in->name.starts_with("w.")
                                        ? in->producer->op
                                        : in->name);
    }
    text += ")\n";
  }
  for (const StateBinding& binding : graph.state) {
    text += binding.state->name + " = " + binding.next->name + "\n";
  }
  return text;
}

TEST(StoreMasters, EachReaderDecodesForItself) {
  auto graph = ParseGraph(kStepOfFloats);
  StoreMasters(*graph, {graph->Find("w")}, StorageFor(*graph, DType::kInt8));
  EXPECT_EQ(LinesOfNodes(*graph),
            "DecodeMaster(w w.correction)\n"
            "MatMul(x DecodeMaster)\n"
            "DecodeMaster(w w.correction)\n"
            "MatMul(DecodeMaster DecodeMaster)\n"
            "Cast(w)\n"
            "MatMul(r a)\n"
            "DecodeMaster(w w.correction)\n"
            "RoundTo(DecodeMaster)\n"
            "Add(b s)\n"
            "DecodeMaster(w w.correction)\n"
            "SGD(DecodeMaster g lr lr ok)\n"
            "EncodeMaster(SGD)\n"
            "Neg(c)\n"
            "w = w.next\n"
            "w.correction = w.correction.next\n");
  const Value* half = graph->Find("w");
  const Value* rest = graph->Find("w.correction");
  EXPECT_EQ(half->dtype, DType::kBFloat16);
  EXPECT_EQ(half->data.dtype(), DType::kBFloat16);
  EXPECT_EQ(half->role, Role::kParameter);
  EXPECT_EQ(rest->dtype, DType::kInt8);
  EXPECT_EQ(rest->role, Role::kCorrection);
  EXPECT_EQ(*rest->shape, *half->shape);
  EXPECT_EQ(graph->Find("w.next")->dtype, DType::kBFloat16);
  EXPECT_EQ(graph->Find("r")->dtype, DType::kFloat);
}

TEST(StoreMasters, WithoutACorrectionTheUpdateDraws) {
  auto graph = ParseGraph(kStepOfFloats);
  StoreMasters(*graph, {graph->Find("w")},
               StorageFor(*graph, DType::kUndefined));
  EXPECT_EQ(LinesOfNodes(*graph),
            "Cast(w)\n"
            "MatMul(x Cast)\n"
            "Cast(w)\n"
            "MatMul(Cast Cast)\n"
            "Cast(w)\n"
            "MatMul(r a)\n"
            "Cast(w)\n"
            "RoundTo(Cast)\n"
            "Add(b s)\n"
            "Cast(w)\n"
            "SGD(Cast g lr lr ok)\n"
            "RoundStochastic(SGD seed number)\n"
            "Neg(c)\n"
            "w = w.next\n");
  const Node& draw = *graph->Find("w.next")->producer;
  EXPECT_EQ(draw.Int("stream", -1),
            static_cast<int64_t>(Hash("w") % (1ull << 32)));
  EXPECT_EQ(draw.Int("shift", -1), 1);
  EXPECT_EQ(draw.Int("row", -1), 2);
  EXPECT_EQ(draw.Int("stride", -1), 3);
  EXPECT_EQ(draw.Int("begin", -1), 4);
}

// Rows are decoded behind the Gather, unless it reads more than the table has.
TEST(StoreMasters, OnlyRowsThatAreLookedUpAreDecoded) {
  for (int64_t rows : {3, 9}) {
    auto graph = ParseGraph(Concat(R"(graph "g" opset 24
param w: float[8,4]
input i: int64[)",
                                   rows, R"(]
y: float[)",
                                   rows, R"(,4] = Gather<axis=0>(w, i)
output y
)"));
    StoreMasters(*graph, {graph->Find("w")}, StorageFor(*graph, DType::kInt16));
    EXPECT_EQ(LinesOfNodes(*graph), rows < 8 ? "Gather(w i)\n"
                                               "Gather(w.correction i)\n"
                                               "DecodeMaster(Gather Gather)\n"
                                             : "DecodeMaster(w w.correction)\n"
                                               "Gather(DecodeMaster i)\n");
    EXPECT_EQ(graph->outputs[0]->name, "y");
    EXPECT_EQ(graph->outputs[0]->dtype, DType::kFloat);
  }
}

TEST(StoreMasters, ACorrectionThatNobodyReadsIsLeftOut) {
  auto graph = ParseGraph(R"(graph "g" opset 24
param w: float[8,4]
y: float[8,4] = onnx_fp8.RoundTo<to=16>(w)
output y
)");
  StoreMasters(*graph, {graph->Find("w")}, StorageFor(*graph, DType::kInt16));
  EXPECT_EQ(LinesOfNodes(*graph), "Cast(w)\n");
  EXPECT_EQ(graph->Find("w.correction"), nullptr);
}

TEST(StoreMasters, OtherWeightsStay) {
  auto graph = ParseGraph(kStepOfFloats);
  const std::string before = Print(*graph);
  StoreMasters(*graph, {}, StorageFor(*graph, DType::kInt8));
  EXPECT_EQ(Print(*graph), before);
}

}  // namespace
}  // namespace onnx_fp8
