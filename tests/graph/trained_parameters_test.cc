// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/trained_parameters.h"

#include <cmath>
#include <map>
#include <set>

#include "graph/onnx_io.h"
#include "onnx_fp8/check.h"
#include "tests/graph/parse.h"
#include "tests/support/corpus.h"

namespace onnx_fp8 {
namespace {

class TrainedParameters : public testing::TestWithParam<CorpusFile> {};

// What the file really holds of the parameters that the reference knows.
std::set<std::string> Expected(const CorpusFile& file, const Graph& graph) {
  auto reference = file.Json("reference.json");
  auto params = file.Json(file.variant + ".params.json");
  std::set<std::string> unused;
  for (const auto& fqn : reference["unused_params"]) {
    unused.insert(params[fqn.get<std::string>()].value("name", ""));
  }
  std::set<std::string> names;
  for (const char* list : {"trainable", "frozen"}) {
    for (const std::string fqn : reference[list]) {
      if (!params.contains(fqn) || params[fqn]["name"].is_null()) continue;
      std::string how = params[fqn]["how"];
      if (how == "constant" || how == "missing") continue;
      std::string name = params[fqn]["name"];
      const Value* value = graph.Find(name);
      if (value && value->is_initializer() && value->data.rank() > 0 &&
          !unused.contains(name)) {
        names.insert(name);
      }
    }
  }
  return names;
}

TEST_P(TrainedParameters, EqualTheReferencesSet) {
  auto graph = ReadModel(GetParam().model());
  MarkParameters(*graph);
  std::set<std::string> got;
  for (const Value* value : graph->Initializers()) {
    if (value->role == Role::kParameter) got.insert(value->name);
  }
  EXPECT_EQ(got, Expected(GetParam(), *graph));
}

INSTANTIATE_TEST_SUITE_P(Corpus, TrainedParameters,
                         testing::ValuesIn(WithVariants({"d18", "l17", "d18x",
                                                         "f17"})),
                         CorpusTestName);

using Names = std::set<std::string>;

Names TrainedOf(const std::string& text) {
  auto graph = ParseGraph(text);
  MarkParameters(*graph);
  Names names;
  for (const Value* value : graph->Initializers()) {
    if (value->role == Role::kParameter) names.insert(value->name);
  }
  return names;
}

// A graph that adds and multiplies x with the initializers.
Names TrainedOf(const std::map<std::string, Tensor>& initializers) {
  Graph graph;
  graph.opset = 18;
  Value* x = graph.AddInput("x", DType::kFloat, Shape{4, 6});
  for (const auto& [name, data] : initializers) {
    Value* table = graph.AddInitializer(name, data);
    for (const char* op : {"Mul", "Add"}) {
      x = graph.AddNode(op, {x, table}, {graph.FreshName("y")})->out(0);
    }
  }
  graph.outputs.push_back(x);
  MarkParameters(graph);
  Names names;
  for (const Value* value : graph.Initializers()) {
    if (value->role == Role::kParameter) names.insert(value->name);
  }
  return names;
}

// (4,6) of f(row, column).
template <typename F>
Tensor Table(F f, DType dtype = DType::kFloat) {
  Tensor t = Tensor::Allocate(DType::kFloat, Shape{4, 6});
  for (int i = 0; i < 24; ++i) {
    t.data<float>()[i] = static_cast<float>(f(i / 6, i % 6));
  }
  return ConvertTo(t, dtype);
}

double Angle(int row, int column) { return row / std::pow(10.0, column); }

TEST(TrainedParametersRule, RotaryTablesAreNoWeights) {
  auto cosine = [](int r, int c) { return std::cos(Angle(r, c)); };
  auto sine = [](int r, int c) { return std::sin(Angle(r, c)); };
  for (DType dtype : {DType::kFloat, DType::kBFloat16, DType::kFloat16}) {
    EXPECT_EQ(TrainedOf({{"c", Table(cosine, dtype)},
                         {"s", Table(sine, dtype)},
                         {"w", Table(Angle, dtype)}}),
              Names{"w"})
        << Name(dtype);
  }
  // One of them alone, or with another's partner, may be anything.
  auto other = [](int r, int c) { return std::sin(1.01 * Angle(r, c)); };
  EXPECT_EQ(TrainedOf({{"c", Table(cosine)}}), Names{"c"});
  EXPECT_EQ(TrainedOf({{"c", Table(cosine)}, {"s", Table(other)}}),
            (Names{"c", "s"}));
}

TEST(TrainedParametersRule, SinusoidalEncodingsAreNoWeights) {
  auto neighbours = [](int r, int c) {
    double angle = Angle(r + 1, c / 2);
    return c % 2 == 0 ? std::sin(angle) : std::cos(angle);
  };
  auto halves = [](int r, int c) {
    double angle = Angle(r + 1, c % 3);
    return c < 3 ? std::sin(angle) : std::cos(angle);
  };
  EXPECT_EQ(TrainedOf({{"p", Table(neighbours)}}), Names{});
  EXPECT_EQ(TrainedOf({{"p", Table(halves)}}), Names{});
}

TEST(TrainedParametersRule, ScalesOfOneAndBiasesOfZeroAreWeights) {
  auto one = [](int, int) { return 1; };
  auto zero = [](int, int) { return 0; };
  EXPECT_EQ(TrainedOf({{"b", Table(zero)}, {"w", Table(one)}}),
            (Names{"b", "w"}));
  auto both = [](int, int c) { return c % 2; };
  EXPECT_EQ(TrainedOf({{"w", Table(both)}}), Names{"w"});
}

TEST(TrainedParametersRule, MasksAreNoWeights) {
  for (double hidden : {-1e9, -3.4e38, -HUGE_VAL}) {
    auto mask = [=](int r, int c) { return c > r ? hidden : 0; };
    EXPECT_EQ(TrainedOf({{"m", Table(mask)}}), Names{}) << hidden;
  }
  auto bias = [](int r, int c) { return c > r ? -1e4 : 0; };
  EXPECT_EQ(TrainedOf({{"m", Table(bias)}}), Names{"m"});
}

// A table is trained where data choose its rows; what constants choose is a
// view.
TEST(TrainedParametersRule, Tables) {
  EXPECT_EQ(TrainedOf(R"(
input ids: int64[2]
const table: float[5,3]
const positions: float[5,3]
const first: int64[2] = {0,1}
a: float[2,3] = Gather(table, ids)
b: float[2,3] = Gather(positions, first)
output a
output b
)"),
            Names{"table"});
}

TEST(TrainedParametersRule, BoundsExponentsAndStatisticsAreNot) {
  EXPECT_EQ(TrainedOf(R"(
input x: float[2,3]
const w: float[3]
const p: float[3]
const high: float[3]
const s: float[3]
const b: float[3]
const mean: float[3]
const var: float[3]
t: float[2,3] = Mul(x, w)
u: float[2,3] = Pow(t, p)
v: float[2,3] = Min(u, high)
y: float[2,3] = BatchNormalization(v, s, b, mean, var)
output y
)"),
            (Names{"w", "s", "b"}));
}

// Frequencies meet positions before they meet data.
TEST(TrainedParametersRule, RotaryFrequenciesAreNot) {
  EXPECT_EQ(TrainedOf(R"(
input x: float[2,3]
const frequency: float[3]
const gain: float[3]
const one: float[] = {1}
const zero: int64[] = {0}
const two: int64[] = {2}
n: int64[2] = Range(zero, two, two)
position: float[2,1] = Cast<to=1>(n)
angle: float[2,3] = Mul(position, frequency)
turn: float[2,3] = Cos(angle)
more: float[3] = Add(gain, one)
a: float[2,3] = Mul(x, turn)
y: float[2,3] = Mul(a, more)
output y
)"),
            Names{"gain"});
}

std::unique_ptr<Graph> SmallGraph() {
  auto graph = std::make_unique<Graph>();
  Value* x = graph->AddInput("x", DType::kFloat, Shape{2, 3});
  Value* w = graph->AddInitializer("w", Tensor::Zeros(DType::kFloat, {3, 3}));
  Value* s = graph->AddInitializer("s", Tensor::Scalar(1.0f));
  Node* y = graph->AddNode("MatMul", {x, w}, {"y"});
  Node* z = graph->AddNode("Mul", {y->out(0), s}, {"z"});
  graph->outputs = {z->out(0)};
  return graph;
}

TEST(TrainedParametersFlags, FreezeThenTrain) {
  auto graph = SmallGraph();
  MarkParameters(*graph);
  EXPECT_EQ(graph->Find("w")->role, Role::kParameter);
  EXPECT_EQ(graph->Find("s")->role, Role::kNone);
  MarkParameters(*graph, {.train = {"s"}, .freeze = {"*"}});
  EXPECT_EQ(graph->Find("w")->role, Role::kFrozen);
  EXPECT_EQ(graph->Find("s")->role, Role::kParameter);
  MarkParameters(*graph, {.train = {"w"}, .freeze = {"*"}});
  EXPECT_EQ(graph->Find("w")->role, Role::kParameter);
  EXPECT_THROW(MarkParameters(*graph, {.train = {"nothing*"}}), Error);
}

}  // namespace
}  // namespace onnx_fp8
