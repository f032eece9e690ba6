// SPDX-License-Identifier: Apache-2.0
#include "graph/export_record.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "base/check.h"
#include "graph/passes/trained_parameters.h"
#include "tests/graph/parse.h"

namespace onnx_fp8 {
namespace {

using Names = std::set<std::string>;

Names Trained(const Graph& graph) {
  Names names;
  for (const Value* value : graph.Initializers()) {
    if (value->role == Role::kParameter) names.insert(value->name);
  }
  return names;
}

constexpr char kTwoLayers[] = R"(
input x: float[2,6]
const a: float[6,6]
const b: float[6]
const t: float[]
y: float[2,6] = MatMul(x, a)
z: float[2,6] = Mul(y, b)
u: float[2,6] = Mul(z, t)
output u
)";

std::unique_ptr<Graph> WithKinds(const std::string& text,
                                 const std::map<std::string, TensorKind>& kinds,
                                 const std::string& producer = "pytorch") {
  auto graph = ParseGraph(text);
  graph->metadata[kGraphSignature] = SignatureText(producer, kinds);
  return graph;
}

TEST(TrainedParametersKinds, AreBelieved) {
  auto graph = WithKinds(kTwoLayers, {{"a", TensorKind::kParameter},
                                      {"b", TensorKind::kBuffer},
                                      {"t", TensorKind::kParameter}});
  auto reports = MarkParameters(*graph);
  EXPECT_EQ(Trained(*graph), (Names{"a", "t"}));
  EXPECT_EQ(reports[0].evidence, Evidence::kKind);
  EXPECT_EQ(reports[1].noun, "buffer");
}

TEST(TrainedParametersKinds, OthersAreJudgedByTheGraph) {
  auto graph = WithKinds(kTwoLayers, {{"a", TensorKind::kConstant}});
  EXPECT_EQ((MarkParameters(*graph), Trained(*graph)), Names{"b"});
}

// A number of rank 0 that kept its name, in a file of PyTorch without kinds.
TEST(TrainedParametersKinds, NamedNumbersOfPyTorch) {
  auto graph = WithKinds(kTwoLayers, {});
  EXPECT_EQ((MarkParameters(*graph), Trained(*graph)), (Names{"a", "b", "t"}));
  graph = WithKinds(kTwoLayers, {}, "tf2onnx");
  EXPECT_EQ((MarkParameters(*graph), Trained(*graph)), (Names{"a", "b"}));
  std::string text = kTwoLayers;
  for (size_t at = 0; (at = text.find(" t", at)) != std::string::npos; ++at) {
    text.replace(at, 2, " val_7");
  }
  graph = WithKinds(text, {});
  EXPECT_EQ((MarkParameters(*graph), Trained(*graph)), (Names{"a", "b"}));
}

// A PARAMETER that is a whole table of sines and cosines: Whisper's positions.
TEST(TrainedParametersKinds, WholeTablesStayStill) {
  const char* text = R"(
input x: float[20,6]
const p: float[20,6]
y: float[20,6] = Add(x, p)
output y
)";
  // (20,6): sines in the first half of each row, cosines in the other. The
  // positions repeat after `rows`.
  auto table = [](int rows) {
    Tensor t = Tensor::Allocate(DType::kFloat, Shape{20, 6});
    for (int i = 0; i < 120; ++i) {
      double angle = i / 6 % rows / std::pow(10.0, i % 3);
      t.data<float>()[i] =
          static_cast<float>(i % 6 < 3 ? std::sin(angle) : std::cos(angle));
    }
    return t;
  };
  auto graph = WithKinds(text, {{"p", TensorKind::kParameter}});
  graph->Find("p")->data = table(20);
  auto reports = MarkParameters(*graph);
  EXPECT_EQ(Trained(*graph), Names{});
  EXPECT_TRUE(reports[0].by_values);
  graph = WithKinds(text, {{"p", TensorKind::kParameter}});
  graph->Find("p")->data = table(20);
  EXPECT_EQ((MarkParameters(*graph, {.train = {"p"}}), Trained(*graph)),
            Names{"p"});
  // The first eight rows turn hardly once.
  graph = WithKinds(text, {{"p", TensorKind::kParameter}});
  graph->Find("p")->data = table(8);
  EXPECT_EQ((MarkParameters(*graph), Trained(*graph)), Names{"p"});
}

constexpr char kRecord[] = R"({"version": 1, "separate": true, "tensors": {
  "a": {"key": "layer.weight", "kind": "parameter", "requires_grad": false,
        "shape": [6, 6], "transposed": true},
  "b": {"key": "gain", "kind": "parameter", "requires_grad": true,
        "shape": [6]},
  "t": {"key": "scale", "kind": "parameter", "requires_grad": true,
        "shape": [2]},
  "none": {"kind": "constant", "shape": []}}})";

TEST(TrainedParametersRecord, IsObeyedWhereItFits) {
  auto graph = WithKinds(kTwoLayers, {{"a", TensorKind::kParameter},
                                      {"b", TensorKind::kConstant}});
  graph->metadata[kExportRecord] = kRecord;
  std::vector<std::string> notes;
  auto reports = MarkParameters(*graph, {}, &notes);
  EXPECT_EQ(Trained(*graph), Names{"b"});
  EXPECT_EQ(graph->Find("a")->role, Role::kFrozen);
  EXPECT_EQ(reports[0].torch.fqn, "layer.weight");
  EXPECT_TRUE(reports[0].torch.transposed);
  // The shape of t is another one, and there is no tensor "none".
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("none, t"), std::string::npos) << notes[0];
  MarkParameters(*graph, {.train = {"layer.weight"}, .freeze = {"gain"}});
  EXPECT_EQ(Trained(*graph), Names{"a"});
}

// The record does not list the constants of functions and bodies.
TEST(TrainedParametersRecord, ConstantNodesBesideItAreNoWeights) {
  for (bool record : {true, false}) {
    auto graph = WithKinds(kTwoLayers, {});
    Tensor w = Tensor::Zeros(DType::kFloat, {6});
    Node* node = graph->AddNode("Constant", {}, {"w"}, {{"value", w}});
    Node* last = graph->Find("u")->producer;
    Node* sum = graph->AddNode("Add", {last->out(0), node->out(0)}, {"v"});
    graph->outputs = {sum->out(0)};
    if (record) graph->metadata[kExportRecord] = kRecord;
    MarkParameters(*graph);
    EXPECT_EQ(Trained(*graph).contains("w"), !record);
  }
}

TEST(TrainedParametersRecord, ThatCannotBeReadIsAnError) {
  for (const char* text : {"", "[]", "{}", R"({"version": 2, "tensors": {}})",
                           R"({"version": 1, "tensors": {"a": {}}})",
                           R"({"version": 1, "tensors": {"a":
                             {"kind": "weight", "shape": []}}})",
                           R"({"version": 1, "tensors": {"a":
                             {"kind": "constant", "shape": [1.5, "x"]}}})"}) {
    auto graph = WithKinds(kTwoLayers, {});
    graph->metadata[kExportRecord] = text;
    EXPECT_THROW(MarkParameters(*graph), Error) << text;
  }
}

TEST(TrainedParametersRecord, MarksTheRowThatPads) {
  auto graph = ParseGraph(R"(
input ids: int64[2]
const w: float[5,3]
v: float[5,3] = Identity(w)
y: float[2,3] = Gather(v, ids)
output y
)");
  std::string record = R"({"version": 1, "tensors": {"w": {"key": "e.weight",
    "kind": "parameter", "shape": [5, 3], "padding_idx": ROW}}})";
  auto with = [&](const char* row) {
    std::string text = record;
    return text.replace(text.find("ROW"), 3, row);
  };
  graph->metadata[kExportRecord] = with("-1");
  MarkParameters(*graph);
  EXPECT_EQ(graph->Find("y")->producer->metadata.at(kPaddingRow), "4");
  graph->metadata[kExportRecord] = with("5");
  EXPECT_THROW(MarkParameters(*graph), Error);
}

}  // namespace
}  // namespace onnx_fp8
