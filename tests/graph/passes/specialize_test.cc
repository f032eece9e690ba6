// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/specialize.h"

#include "base/check.h"
#include "data/safetensors.h"
#include "graph/onnx/onnx_io.h"
#include "graph/onnx/verify.h"
#include "graph/passes/trained_parameters.h"
#include "graph/print.h"
#include "providers/cpu/cpu_provider.h"
#include "tests/graph/parse.h"
#include "tests/support/corpus.h"

namespace onnx_fp8 {
namespace {

class SpecializeCorpus : public testing::TestWithParam<CorpusFile> {};

// The shapes of the reference's feeds, by graph input.
std::map<std::string, Shape> FedShapes(const CorpusFile& file,
                                       const Graph& graph) {
  TensorMap arrays = ReadSafetensors(file.reference());
  std::map<std::string, Shape> shapes;
  for (const Value* input : graph.inputs) {
    for (const char* prefix : {"input.", "label."}) {
      auto it = arrays.find(prefix + input->name);
      if (it != arrays.end()) shapes[input->name] = it->second.shape();
    }
  }
  return shapes;
}

TEST_P(SpecializeCorpus, EveryValueHasAConcreteShape) {
  auto graph = ReadModel(GetParam().model());
  MarkParameters(*graph);
  auto evaluator = MakeCpuEvaluator();
  SpecializeReport report;
  auto special =
      Specialize(*graph, FedShapes(GetParam(), *graph), *evaluator, &report);
  for (const Value* value : special->Values()) {
    EXPECT_TRUE(value->concrete()) << value->name;
    EXPECT_NE(value->dtype, DType::kUndefined) << value->name;
  }
  EXPECT_EQ(special->outputs.size(), graph->outputs.size());
  for (size_t i = 0; i < special->outputs.size(); ++i) {
    EXPECT_EQ(special->outputs[i]->name, graph->outputs[i]->name);
  }
  EXPECT_LE(report.nodes_after, report.nodes_before);
}

INSTANTIATE_TEST_SUITE_P(Corpus, SpecializeCorpus,
                         testing::ValuesIn(WithVariants({"d18", "d20", "d23",
                                                         "l17", "l17e", "d18x",
                                                         "f17"})),
                         CorpusTestName);

// The graph for inputs of the shapes that it declares.
std::unique_ptr<Graph> Special(const Graph& graph) {
  std::map<std::string, Shape> shapes;
  for (const Value* input : graph.inputs) shapes[input->name] = *input->shape;
  auto special = Specialize(graph, shapes, *MakeCpuEvaluator());
  Verify(*special);
  return special;
}

std::string SpecialText(const std::string& text) {
  std::string after = Print(*Special(*ParseGraph(text)));
  return after.substr(after.find('\n') + 1);
}

TEST(Specialize, ShapeArithmeticIsComputed) {
  EXPECT_EQ(SpecialText(R"(
input x: float[2,3,4]
const minus: int64[1] = {-7}
const two: int64[1] = {2}
s: int64[2] = Shape<start=-2>(x)
t: int64[1] = Shape<end=-2>(x)
n: int64[] = Size(x)
d: int64[1] = Div(minus, two)
m: int64[1] = Mod(minus, two)
output s
output t
output n
output d
output m
)"),
            R"(input x: float[2,3,4]
const s: int64[2] = {3,4}
const t: int64[1] = {2}
const n: int64[] = {24}
const minus: int64[1] = {-7}
const two: int64[1] = {2}
const d: int64[1] = {-3}
const m: int64[1] = {1}
output s
output t
output n
output d
output m
)");
}

// Constants are folded; values that are trained, drawn or fed are not.
TEST(Specialize, KeepsWhatDiffersFromStepToStep) {
  EXPECT_EQ(SpecialText(R"(
const c: float[2] = {1,2}
param w: float[2]
state s: float[2]
a: float[2] = Neg(c)
b: float[2] = Neg(w)
d: float[2] = Neg(s)
e: float[2] = RandomNormalLike(c)
output a
output b
output d
output e
)"),
            R"(const c: float[2] = {1.0,2.0}
const a: float[2] = {-1.0,-2.0}
param w: float[2]
state s: float[2]
b: float[2] = Neg(w)
d: float[2] = Neg(s)
e: float[2] = RandomNormalLike(c)
output a
output b
output d
output e
)");
}

std::shared_ptr<Graph> BodyOf(const std::string& text) {
  return std::shared_ptr<Graph>(ParseGraph(text));
}

TEST(Specialize, TakesTheBranchThatTheConditionSays) {
  for (bool condition : {false, true}) {
    auto graph = ParseGraph("input x: float[2]");
    Value* known = graph->AddInitializer("c", Tensor::Scalar(condition));
    auto yes = BodyOf("captured x:\ny: float[2] = Neg(x)\noutput y");
    auto no = BodyOf("captured x:\ny: float[2] = Abs(x)\noutput y");
    Node* node = graph->AddNode("If", {known}, {"z"},
                                {{"then_branch", yes}, {"else_branch", no}});
    graph->outputs = {node->out(0)};
    auto special = Special(*graph);
    ASSERT_EQ(special->nodes().size(), 1u);
    EXPECT_EQ(special->nodes().front().op, condition ? "Neg" : "Abs");
  }
}

TEST(Specialize, UnrollsALoopAsOftenAsItSays) {
  auto graph = ParseGraph("input x: float[2]");
  auto body = BodyOf(R"(
input i: int64[]
input go: bool[]
input v: float[2]
next: float[2] = Neg(v)
goes: bool[] = Identity(go)
output goes
output next
)");
  Value* trips = graph->AddInitializer("n", Tensor::Scalar<int64_t>(3));
  Node* loop = graph->AddNode("Loop", {trips, nullptr, graph->Find("x")}, {"y"},
                              {{"body", body}});
  graph->outputs = {loop->out(0)};
  EXPECT_EQ(Special(*graph)->nodes().size(), 3u);
}

// The rows that a Scan reads, in order.
std::vector<int64_t> RowsOfScan(int64_t direction) {
  auto graph = ParseGraph("input x: float[3,2]");
  auto body = BodyOf("input r: float[2]\ny: float[2] = Neg(r)\noutput y");
  Node* scan = graph->AddNode(
      "Scan", {graph->Find("x")}, {"ys"},
      {{"body", body},
       {"num_scan_inputs", int64_t{1}},
       {"scan_input_directions", std::vector<int64_t>{direction}}});
  graph->outputs = {scan->out(0)};
  std::vector<int64_t> rows;
  auto special = Special(*graph);
  for (const Node& node : special->nodes()) {
    if (node.Is("Gather")) rows.push_back(IntAt(node.in(1)->data, 0));
  }
  return rows;
}

TEST(Specialize, ScansInBothDirections) {
  EXPECT_EQ(RowsOfScan(0), (std::vector<int64_t>{0, 1, 2}));
  EXPECT_EQ(RowsOfScan(1), (std::vector<int64_t>{2, 1, 0}));
}

// z = If(sr == 16000, -x, |x|).
std::unique_ptr<Graph> BranchesByRate(const std::string& condition) {
  auto graph = ParseGraph("input x: float[2]\ninput sr: int64[]\n" +
                          std::string("const rate: int64[] = {16000}\n") +
                          condition + "output c\n");
  auto yes = BodyOf("captured x:\ny: float[2] = Neg(x)\noutput y");
  auto no = BodyOf("captured x:\ny: float[2] = Abs(x)\noutput y");
  Node* node = graph->AddNode("If", {graph->Find("c")}, {"z"},
                              {{"then_branch", yes}, {"else_branch", no}});
  graph->outputs = {node->out(0)};
  return graph;
}

std::unique_ptr<Graph> SpecialFor(const Graph& graph, const InputValues& values,
                                  SpecializeReport* report) {
  std::map<std::string, Shape> shapes;
  for (const Value* input : graph.inputs) shapes[input->name] = *input->shape;
  auto special = Specialize(graph, shapes, *MakeCpuEvaluator(), report, values);
  Verify(*special);
  return special;
}

TEST(SpecializeValues, DecideABranch) {
  auto graph = BranchesByRate("c: bool[] = Equal(sr, rate)\n");
  for (int64_t rate : {8000, 16000}) {
    SpecializeReport report;
    InputValues values = {{"sr", rate}, {"other", 1}};
    auto special = SpecialFor(*graph, values, &report);
    ASSERT_EQ(special->nodes().size(), 1u);
    EXPECT_EQ(special->nodes().front().op, rate == 16000 ? "Neg" : "Abs");
    EXPECT_EQ(report.values, (InputValues{{"sr", rate}}));
    ASSERT_EQ(special->inputs.size(), 1u);
    EXPECT_EQ(special->inputs[0]->name, "x");
  }
  try {
    SpecialFor(*graph, {}, nullptr);
    ADD_FAILURE() << "expected an error";
  } catch (const Error& error) {
    std::string text = error.what();
    EXPECT_NE(text.find("input \"sr\", which decides the condition"),
              std::string::npos)
        << text;
    EXPECT_NE(text.find("`value` sr=N"), std::string::npos) << text;
  }
}

TEST(SpecializeValues, AreNotTakenWhereDataDecide) {
  auto graph = BranchesByRate(R"(
axes: int64[1] = Shape(x)
zero: float[] = Cast<to=1>(sr)
m: float[] = ReduceMax<keepdims=0>(x)
c: bool[] = Greater(m, zero)
)");
  SpecializeReport report;
  auto special = SpecialFor(*graph, {{"sr", 16000}}, &report);
  EXPECT_TRUE(report.values.empty());
  EXPECT_EQ(special->inputs.size(), 2u);
  EXPECT_EQ(special->outputs[0]->producer->op, "Where");
}

TEST(SpecializeValues, DecideSizesAndTripCounts) {
  auto graph = ParseGraph(R"(
input x: float[6]
input n: int64[1]
input factor: int64[]
const zero: int64[1] = {0}
part: float[] = Slice(x, zero, n)
f: float[] = Cast<to=1>(factor)
scaled: float[] = Mul(part, f)
output scaled
)");
  for (int64_t n : {2, 5}) {
    SpecializeReport report;
    auto special = SpecialFor(*graph, {{"n", n}, {"factor", 3}}, &report);
    EXPECT_EQ(*special->outputs[0]->shape, Shape{n});
    EXPECT_EQ(report.values, (InputValues{{"n", n}}));
    EXPECT_EQ(special->inputs.size(), 2u);
  }
  auto loop = ParseGraph("input x: float[2]\ninput n: int64[]\noutput x");
  auto body = BodyOf(R"(
input i: int64[]
input go: bool[]
input v: float[2]
next: float[2] = Neg(v)
goes: bool[] = Identity(go)
output goes
output next
)");
  Node* node =
      loop->AddNode("Loop", {loop->Find("n"), nullptr, loop->Find("x")}, {"y"},
                    {{"body", body}});
  loop->outputs = {node->out(0)};
  SpecializeReport report;
  EXPECT_EQ(SpecialFor(*loop, {{"n", 4}}, &report)->nodes().size(), 4u);
}

TEST(SpecializeValues, AreThoseOfOneIntegerOrBool) {
  auto graph = ParseGraph(R"(
input a: int64[]
input b: bool[1]
input c: float[]
input d: int64[2]
input e: int64[1,1]
input f: int64[]
output a
)");
  TensorMap feeds = {{"a", Tensor::Scalar<int64_t>(-7)},
                     {"b", Tensor::Scalar(true).Reshaped({1})},
                     {"c", Tensor::Scalar(1.0f)},
                     {"d", Tensor::Ints({1, 2})},
                     {"e", Tensor::Ints({1}).Reshaped({1, 1})},
                     {"f", Tensor::Scalar(1.0f)}};
  EXPECT_EQ(ValuesOf(*graph, feeds), (InputValues{{"a", -7}, {"b", 1}}));
}

}  // namespace
}  // namespace onnx_fp8
