// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/trained_parameters.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numbers>
#include <set>

#include "base/check.h"
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
  Value* x = graph.AddInput("x", DType::kFloat, Shape{20, 6});
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

// (20,6) of f(row, column).
template <typename F>
Tensor Table(F f, DType dtype = DType::kFloat) {
  Tensor t = Tensor::Allocate(DType::kFloat, Shape{20, 6});
  for (int i = 0; i < 120; ++i) {
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
  // A model of half types computes in float, and so does the rule.
  for (DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    auto rounded = [&](auto f) {
      return ConvertTo(Table(f, dtype), DType::kFloat);
    };
    EXPECT_EQ(TrainedOf({{"c", rounded(cosine)}, {"s", rounded(sine)}}),
              Names{})
        << Name(dtype);
  }
  // A table alone, or with the partner of another one, may be anything.
  auto other = [](int r, int c) { return std::sin(1.01 * Angle(r, c)); };
  EXPECT_EQ(TrainedOf({{"c", Table(cosine)}}), Names{"c"});
  EXPECT_EQ(TrainedOf({{"c", Table(cosine)}, {"s", Table(other)}}),
            (Names{"c", "s"}));
}

TEST(TrainedParametersRule, SinusoidalEncodingsAreNoWeights) {
  auto neighbors = [](int r, int c) {
    double angle = Angle(r + 1, c / 2);
    return c % 2 == 0 ? std::sin(angle) : std::cos(angle);
  };
  auto halves = [](int r, int c) {
    double angle = Angle(r + 1, c % 3);
    return c < 3 ? std::sin(angle) : std::cos(angle);
  };
  EXPECT_EQ(TrainedOf({{"p", Table(neighbors)}}), Names{});
  EXPECT_EQ(TrainedOf({{"p", Table(halves)}}), Names{});
}

// The layer of a spectrogram: 5 cosines and 5 sines of 0 to 4 periods in 8
// samples, under a window.
TEST(TrainedParametersRule, FourierBasesAreNoWeights) {
  auto basis = [](double periods, double sign) {
    Tensor t = Tensor::Allocate(DType::kFloat, Shape{10, 1, 8});
    for (int k = 0; k < 5; ++k) {
      for (int i = 0; i < 8; ++i) {
        double turn = std::numbers::pi / 4 * i;
        double window = 0.5 - 0.5 * std::cos(turn), angle = periods * k * turn;
        t.data<float>()[k * 8 + i] =
            static_cast<float>(window * std::cos(angle));
        t.data<float>()[(5 + k) * 8 + i] =
            static_cast<float>(sign * window * std::sin(angle));
      }
    }
    return t;
  };
  auto trained = [](const Tensor& weight) {
    Graph graph;
    graph.opset = 18;
    Value* x = graph.AddInput("x", DType::kFloat, Shape{1, 1, 32});
    Value* w = graph.AddInitializer("w", weight);
    graph.outputs = {graph.AddNode("Conv", {x, w}, {"y"})->out(0)};
    MarkParameters(graph);
    return graph.Find("w")->role == Role::kParameter;
  };
  for (double sign : {1.0, -1.0}) {
    EXPECT_FALSE(trained(basis(1, sign)));
    EXPECT_FALSE(trained(
        ConvertTo(ConvertTo(basis(1, sign), DType::kFloat16), DType::kFloat)));
    EXPECT_TRUE(trained(basis(1.01, sign)));
  }
  EXPECT_TRUE(trained(basis(1, 0.9)));
  EXPECT_TRUE(trained(Tensor::Zeros(DType::kFloat, {10, 1, 8})));
}

// Pairs on the unit circle that do not turn from step to step, or hardly.
TEST(TrainedParametersRule, PointsOnTheUnitCircleAreWeights) {
  auto cosine = [](int r, int) { return std::cos(r * r); };
  auto sine = [](int r, int) { return std::sin(r * r); };
  EXPECT_EQ(TrainedOf({{"c", Table(cosine)}, {"s", Table(sine)}}),
            (Names{"c", "s"}));
  auto slow_cosine = [](int r, int) { return std::cos(0.1 * r); };
  auto slow_sine = [](int r, int) { return std::sin(0.1 * r); };
  EXPECT_EQ(TrainedOf({{"c", Table(slow_cosine)}, {"s", Table(slow_sine)}}),
            (Names{"c", "s"}));
}

// Numbers prove nothing about the weight of a layer or the scale of a norm, and
// only a whole table about the operand of a lookup.
TEST(TrainedParametersRule, NumbersOfLayersProveNothing) {
  auto angles = [](int r, int c) {
    return c < 3 ? std::sin(Angle(r, c)) : std::cos(Angle(r, c % 3));
  };
  auto falling = [](int, int c) { return std::pow(0.1, c); };
  auto graph_of = [](const char* text, const Tensor& data) {
    auto graph = ParseGraph(text);
    graph->Find("w")->data = data;
    MarkParameters(*graph);
    return Trained(*graph);
  };
  const char* layer = R"(
input x: float[2,20]
const w: float[20,6]
y: float[2,6] = MatMul(x, w)
output y
)";
  EXPECT_EQ(graph_of(layer, Table(angles)), Names{"w"});
  EXPECT_EQ(graph_of(layer, Table(falling)), Names{"w"});
  const char* lookup = R"(
input ids: int64[2]
const w: float[20,6]
y: float[2,6] = Gather(w, ids)
output y
)";
  EXPECT_EQ(graph_of(lookup, Table(angles)), Names{});
  EXPECT_EQ(graph_of(lookup, Table(falling)), Names{"w"});
  const char* norm = R"(
input x: float[2,6]
const w: float[6]
y: float[2,6] = LayerNormalization(x, w)
output y
)";
  EXPECT_EQ(graph_of(norm, Tensor::From<float>(
                               {6}, std::vector<float>{1, .1, .01, 1e-3, 1e-4,
                                                       1e-5})),
            Names{"w"});
}

// Features that are integers, as in shared tabular data.
TEST(TrainedParametersRule, FallingWeightsOfIntegerFeatures) {
  EXPECT_EQ(TrainedOf(R"(
input x: int64[2,3]
const w: float[1,3] = {0.9,0.4,0.1}
f: float[2,3] = Cast<to=1>(x)
y: float[2,1] = Gemm<transB=1>(f, w)
output y
)"),
            Names{"w"});
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

// A table is trained if data choose its rows; if constants choose them, it is a
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

// The tensors with which a normalization without parameters is written. If they
// have a name of their own they may be parameters.
TEST(TrainedParametersRule, PlaceholdersOfNormsAreNoWeights) {
  auto text = [](const std::string& scale, const std::string& bias) {
    return "input x: float[2,3,4]\n\"" + scale +
           "\": float[3] = Constant<value_floats=[1.0,1.0,1.0]>()\n\"" + bias +
           "\": float[3] = Constant<value_floats=[0.0,0.0,0.0]>()\n"
           "y: float[2,3,4] = InstanceNormalization(x, \"" +
           scale + "\", \"" + bias + "\")\noutput y\n";
  };
  EXPECT_EQ(TrainedOf(text("/n/Constant_output_0", "/n/Constant_1_output_0")),
            Names{});
  EXPECT_EQ(TrainedOf(text("n.weight", "n.bias")),
            (Names{"n.weight", "n.bias"}));
}

// tf2onnx reshapes the numbers of an activation.
TEST(TrainedParametersRule, FoldedNumbersAreNoWeights) {
  EXPECT_EQ(TrainedOf(R"(
input x: float[2,3]
const const_fold_opt__211: float[1,1]
const const_fold_opt__209: float[1,3]
a: float[2,3] = Add(x, const_fold_opt__211)
y: float[2,3] = Mul(a, const_fold_opt__209)
output y
)"),
            Names{"const_fold_opt__209"});
}

TEST(TrainedParametersRule, ExponentsAndExtremes) {
  EXPECT_EQ(TrainedOf(R"(
input x: float[2,3]
const p: float[3]
const high: float[3]
const low: float[2,1]
const base: float[3]
const two: float[1]
const bound: float[1]
a: float[2,3] = Pow(x, p)
b: float[2,3] = Min(a, high)
c: float[2,3] = Max(low, b, bound)
d: float[2,3] = Pow(base, c)
y: float[2,3] = Pow(d, two)
output y
)"),
            (Names{"p", "high", "low", "base"}));
}

// The data operand of Resize and Pad travels on; the other operands don't.
TEST(TrainedParametersRule, ResampledTables) {
  EXPECT_EQ(TrainedOf(R"(
input x: float[1,3,8,8]
const positions: float[1,3,4,4]
const edges: float[1,3,6,6]
const roi: float[8]
const scales: float[4] = {1,1,2,2}
const ends: int64[8] = {0,0,1,1,0,0,1,1}
const fill: float[1] = {0.5}
large: float[1,3,8,8] = Resize(positions, roi, scales)
wide: float[1,3,8,8] = Pad(edges, ends, fill)
a: float[1,3,8,8] = Add(x, large)
y: float[1,3,8,8] = Add(a, wide)
output y
)"),
            (Names{"positions", "edges"}));
}

// The norm of a weight over some of its axes.
TEST(TrainedParametersRule, WeightNorm) {
  EXPECT_EQ(TrainedOf(R"(
input x: float[1,3,8,8]
const v: float[4,3,2,2]
const g: float[4,1,1,1]
const axes: int64[3] = {1,2,3}
length: float[4,1,1,1] = ReduceL2(v, axes)
unit: float[4,3,2,2] = Div(v, length)
w: float[4,3,2,2] = Mul(unit, g)
y: float[1,4,7,7] = Conv(x, w)
output y
)"),
            (Names{"v", "g"}));
}

// bytes → one-hot → embedding, as JAX and TensorFlow write it.
TEST(TrainedParametersRule, ProductsOfIntegerInputs) {
  EXPECT_EQ(TrainedOf(R"(
input bytes: int32[2,5]
const alphabet: int32[7] = {0,1,2,3,4,5,6}
const axis: int64[1] = {2}
const w: float[7,4]
const b: float[4]
each: int32[2,5,1] = Unsqueeze(bytes, axis)
same: bool[2,5,7] = Equal(each, alphabet)
hot: float[2,5,7] = Cast<to=1>(same)
x: float[2,5,4] = MatMul(hot, w)
y: float[2,5,4] = Add(x, b)
output y
)"),
            (Names{"w", "b"}));
  EXPECT_EQ(TrainedOf(R"(
input image: uint8[1,3,8,8]
const mean: float[1,3,1,1]
const range: float[] = {255}
const w: float[4,3,2,2]
const b: float[4]
x: float[1,3,8,8] = Cast<to=1>(image)
centered: float[1,3,8,8] = Sub(x, mean)
scaled: float[1,3,8,8] = Div(centered, range)
y: float[1,4,7,7] = Conv(scaled, w, b)
output y
)"),
            (Names{"w", "b"}));
}

// The mask is computed from integers that are fed; positions are their sums.
TEST(TrainedParametersRule, MasksAndPositionsOfIntegerInputs) {
  std::string text = R"(
input x: float[2,5,8]
input seen: int64[2,5]
const one: float[] = {1}
const low: float[] = {-10000}
const slopes: float[8,1] = {8,7,6,5,4,3,2,1}
const axis: int64[] = {1}
const middle: int64[1] = {1}
const frequency: float[1,4,1] = FREQUENCY
const w: float[8,8]
m: float[2,5] = Cast<to=1>(seen)
hidden: float[2,5] = Sub(one, m)
bias: float[2,5] = Mul(hidden, low)
bias3: float[2,1,5] = Unsqueeze(bias, middle)
alibi: float[2,8,5] = Mul(slopes, bias3)
p: int64[2,5] = CumSum(seen, axis)
pf: float[2,5] = Cast<to=1>(p)
p3: float[2,1,5] = Unsqueeze(pf, middle)
angle: float[2,4,5] = MatMul(frequency, p3)
turned: float[2,5,4] = Transpose<perm=[0,2,1]>(angle)
both: float[2,5,8] = Concat<axis=2>(turned, turned)
cos: float[2,5,8] = Cos(both)
sin: float[2,5,8] = Sin(both)
a: float[2,5,8] = Mul(x, cos)
b: float[2,5,8] = Add(a, sin)
c: float[2,5,8] = MatMul(b, w)
ct: float[2,8,5] = Transpose<perm=[0,2,1]>(c)
y: float[2,8,5] = Add(ct, alibi)
output y
)";
  // The frequencies as they are, and scaled to a longer context as in LLaMA 3.
  for (const char* frequency :
       {"{1,0.1,0.01,0.001}", "{1,0.1,0.0032,0.000125}"}) {
    std::string with = text;
    with.replace(with.find("FREQUENCY"), 9, frequency);
    EXPECT_EQ(TrainedOf(with), Names{"w"}) << frequency;
    // The same by Einsum.
    size_t product = with.find("MatMul(frequency, p3)");
    with.replace(product, 21,
                 "Einsum<equation=\"bij,bjt->bit\">(frequency, p3)");
    EXPECT_EQ(TrainedOf(with), Names{"w"}) << frequency;
  }
  // A layer with one integer as its input.
  text.replace(text.find("FREQUENCY"), 9, "{0.3,-0.1,0.2,-0.5}");
  EXPECT_EQ(TrainedOf(text), (Names{"frequency", "w"}));
}

TEST(TrainedParametersRule, FrequenciesAreNoWeights) {
  auto rows = [](int, int c) { return std::pow(0.1, c); };
  auto slower = [](int, int c) { return std::pow(0.5, c + 1); };
  EXPECT_EQ(TrainedOf({{"f", Table(rows)}}), Names{});
  EXPECT_EQ(TrainedOf({{"f", Table(slower, DType::kBFloat16)}}), Names{});
  auto uneven = [](int, int c) { return 1.0 / (1 + c); };
  auto gains = [](int, int c) { return 1 - 0.01 * c; };
  EXPECT_EQ(TrainedOf({{"w", Table(uneven)}}), Names{"w"});
  EXPECT_EQ(TrainedOf({{"w", Table(gains)}}), Names{"w"});
}

TEST(TrainedParametersRule, BoundsAndStatisticsAreNot) {
  EXPECT_EQ(TrainedOf(R"(
input x: float[2,3]
const w: float[3]
const low: float[1]
const high: float[1]
const s: float[3]
const b: float[3]
const mean: float[3]
const var: float[3]
t: float[2,3] = Mul(x, w)
u: float[2,3] = Clip(t, low)
v: float[2,3] = Min(u, high)
y: float[2,3] = BatchNormalization(v, s, b, mean, var)
output y
)"),
            (Names{"w", "s", "b"}));
}

// A scale per channel belongs to the codes, whichever tensor they quantize.
TEST(TrainedParametersRule, ScalesOfCodesAreNoWeights) {
  EXPECT_EQ(TrainedOf(R"(
input x: float[2,3]
const w: float[3]
const scale: float[3]
const zero: int8[3]
t: float[2,3] = Mul(x, w)
q: int8[2,3] = QuantizeLinear<axis=1>(t, scale, zero)
y: float[2,3] = DequantizeLinear<axis=1>(q, scale, zero)
output y
)"),
            (Names{"w"}));
}

TEST(TrainedParametersFlags, ScalesOfCodesStayFixed) {
  auto graph = ParseGraph(R"(
input x: float[2,3]
const scale: float[]
q: int8[2,3] = QuantizeLinear(x, scale)
y: float[2,3] = DequantizeLinear(q, scale)
output y
)");
  try {
    MarkParameters(*graph, {.train = {"scale"}});
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("scales stay fixed"),
              std::string::npos)
        << e.what();
  }
  MarkParameters(*graph, {.freeze = {"scale"}});
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
