// SPDX-License-Identifier: Apache-2.0
//
// Compares the unrolled graph with the kernels of LSTM, GRU and RNN.
#include "graph/passes/unroll_recurrent.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "graph/builder.h"
#include "graph/node_notes.h"
#include "graph/onnx/infer_shapes.h"
#include "graph/onnx/verify.h"
#include "graph/views.h"
#include "tests/providers/cpu/run_node.h"
#include "tests/training/gradient_check.h"

namespace onnx_fp8 {
namespace {

constexpr int64_t kSteps = 5, kBatch = 3, kInputs = 4, kHidden = 6;

using Strings = std::vector<std::string>;

struct Case {
  std::string name;
  std::string op;
  Attributes attributes = {};
  std::vector<size_t> operands = {};  // optional ones, by slot
  std::vector<int32_t> lengths = {};
  bool fed_lengths = false;
  std::vector<size_t> outputs = {0, 1, 2};
  int64_t steps = kSteps;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

int64_t Gates(const std::string& op) {
  return op == "LSTM" ? 4 : op == "GRU" ? 3 : 1;
}

size_t Activations(const std::string& op) {
  return op == "LSTM" ? 3 : op == "GRU" ? 2 : 1;
}

struct Model {
  Graph graph;
  Node* node;
  std::map<std::string, Tensor> feeds;
};

Shape OperandShape(const Case& c, size_t slot) {
  auto text = [&](const char* key) {
    auto it = c.attributes.find(key);
    return it == c.attributes.end() ? "" : std::get<std::string>(it->second);
  };
  bool batch_first = c.attributes.contains("layout");
  int64_t d = text("direction") == "bidirectional" ? 2 : 1;
  int64_t rows = Gates(c.op) * kHidden;
  switch (slot) {
    case 0:
      return batch_first ? Shape{kBatch, c.steps, kInputs}
                         : Shape{c.steps, kBatch, kInputs};
    case 1:
      return {d, rows, kInputs};
    case 2:
      return {d, rows, kHidden};
    case 3:
      return {d, 2 * rows};
    case 7:
      return {d, 3 * kHidden};
    default:
      return batch_first ? Shape{kBatch, d, kHidden}
                         : Shape{d, kBatch, kHidden};
  }
}

void Build(const Case& c, Model& m) {
  std::vector<Value*> in(8, nullptr);
  std::vector<size_t> slots = {0, 1, 2};
  slots.insert(slots.end(), c.operands.begin(), c.operands.end());
  for (size_t slot : slots) {
    std::string name = "in" + std::to_string(slot);
    Shape shape = OperandShape(c, slot);
    m.feeds[name] = RandomNormal(shape, slot + 1);
    in[slot] = m.graph.AddInput(name, DType::kFloat, shape);
  }
  if (!c.lengths.empty()) {
    Tensor lengths = Tensor::From<int32_t>({kBatch}, c.lengths);
    if (c.fed_lengths) {
      in[4] = m.graph.AddInput("lengths", DType::kInt32, Shape{kBatch});
      m.feeds["lengths"] = lengths;
    } else {
      in[4] = m.graph.AddInitializer("lengths", lengths);
    }
  }
  Strings names(c.op == "LSTM" ? 3 : 2);
  for (size_t i : c.outputs) {
    if (i < names.size()) names[i] = "out" + std::to_string(i);
  }
  Attributes attributes = c.attributes;
  attributes["hidden_size"] = kHidden;
  m.node = m.graph.AddNode(c.op, in, names, attributes);
  m.node->name = "/net/cell";
  m.node->metadata = {{"path", "net.cell"}};
  InferNode(*m.node, m.graph.opset);
  for (Value* out : m.node->outputs()) {
    if (out) m.graph.outputs.push_back(out);
  }
}

class Unrolled : public testing::TestWithParam<Case> {};

TEST_P(Unrolled, ComputesWhatTheKernelDoes) {
  Model m;
  Build(GetParam(), m);
  auto want = RunGraph(m.graph, m.feeds);
  std::map<std::string, Shape> shapes;
  for (const Value* out : m.graph.outputs) shapes[out->name] = *out->shape;
  ASSERT_FALSE(shapes.empty());
  UnrollRecurrent(m.graph);
  Verify(m.graph);
  for (const Node& node : m.graph.nodes()) {
    EXPECT_TRUE(node.domain.empty() && node.op != GetParam().op);
    EXPECT_EQ(node.metadata.at("path"), "net.cell") << node.Where();
  }
  auto got = RunGraph(m.graph, m.feeds);
  ASSERT_EQ(m.graph.outputs.size(), shapes.size());
  for (const Value* out : m.graph.outputs) {
    EXPECT_EQ(*out->shape, shapes.at(out->name)) << out->name;
    const Tensor& y = want.at(out->name);
    double largest = 1;
    for (int64_t i = 0; i < y.size(); ++i) {
      largest = std::max(largest, std::fabs(DoubleAt(y, i)));
    }
    EXPECT_LE(LargestDifference(got.at(out->name), y), 2e-6 * largest)
        << out->name;
  }
}

const std::vector<size_t> kAll = {3, 5, 6, 7};

std::vector<size_t> Operands(const std::string& op) {
  return op == "LSTM" ? kAll : std::vector<size_t>{3, 5};
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const char* op : {"LSTM", "GRU", "RNN"}) {
    auto add = [&](const std::string& name, const Case& c) {
      cases.push_back(c);
      cases.back().name = op + name;
      cases.back().op = op;
    };
    for (const char* direction : {"forward", "reverse", "bidirectional"}) {
      for (int64_t layout : {0, 1}) {
        Attributes a = {{"direction", std::string(direction)}};
        if (layout) a["layout"] = layout;
        std::string name = Concat("_", direction, layout);
        add(name, {"", "", a, Operands(op)});
        add(name + "_lengths", {"", "", a, Operands(op), {2, 5, 0}});
        add(name + "_fed", {"", "", a, Operands(op), {4, 0, 3}, true});
      }
    }
    add("_bare", {"", "", {}});
    add("_short_lengths", {"", "", {}, Operands(op), {1, 3, 2}});
    add("_y_only", {"", "", {}, Operands(op), {}, false, {0}});
    add("_h_only", {"", "", {}, Operands(op), {2, 5, 0}, false, {1}});
    add("_clip", {"", "", {{"clip", 0.3f}}, Operands(op)});
    add("_one_step", {"", "", {}, Operands(op), {}, false, {0, 1, 2}, 1});
    add("_no_step", {"", "", {}, Operands(op), {}, false, {0, 1, 2}, 0});
    Strings kinds = {"Tanh", "Relu", "Sigmoid", "Relu", "Tanh", "Sigmoid"};
    kinds.resize(2 * Activations(op));
    add("_activations",
        {"",
         "",
         {{"direction", "bidirectional"}, {"activations", kinds}},
         Operands(op)});
  }
  cases.push_back({"LSTM_c_only", "LSTM", {}, kAll, {}, false, {2}});
  cases.push_back({"LSTM_no_peephole", "LSTM", {}, {3, 6}});
  cases.push_back(
      {"LSTM_coupled", "LSTM", {{"input_forget", int64_t{1}}}, kAll});
  Attributes before = {{"linear_before_reset", int64_t{1}}};
  cases.push_back({"GRU_resets_last", "GRU", before, {3, 5}});
  cases.push_back({"GRU_resets_last_no_bias", "GRU", before, {5}});
  cases.push_back({"GRU_resets_last_lengths", "GRU", before, {3}, {0, 4, 2}});
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Table, Unrolled, testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

// Activations that the kernel lacks, by the operator's text. One step from zero
// state, W of identities, no bias: every gate sees x.
std::vector<double> OneStep(const std::string& op, int64_t gates,
                            Attributes attributes,
                            const std::vector<float>& x) {
  auto n = static_cast<int64_t>(x.size());
  Tensor w = Tensor::Zeros(DType::kFloat, {1, gates * n, n});
  for (int64_t i = 0; i < gates * n; ++i) {
    w.data<float>()[i * n + i % n] = 1;
  }
  Graph graph;
  Value* in = graph.AddInput("x", DType::kFloat, Shape{1, 1, n});
  Value* weight = graph.AddInitializer("w", w);
  Value* r = graph.AddInitializer(
      "r", Tensor::Zeros(DType::kFloat, {1, gates * n, n}));
  attributes["hidden_size"] = n;
  Node* node = graph.AddNode(op, {in, weight, r}, {"y"}, attributes);
  InferNode(*node, graph.opset);
  graph.outputs.push_back(node->out(0));
  UnrollRecurrent(graph);
  Tensor y = RunGraph(graph, {{"x", Tensor::From<float>({1, 1, n}, x)}})["y"];
  std::vector<double> values;
  for (int64_t i = 0; i < y.size(); ++i) values.push_back(DoubleAt(y, i));
  return values;
}

TEST(UnrollRecurrent, EveryActivationOfTheOperatorsText) {
  struct {
    const char* name;
    std::vector<float> alpha, beta;
    double (*f)(double);
  } const kTable[] = {
      {"Sigmoid", {}, {}, [](double x) { return 1 / (1 + std::exp(-x)); }},
      {"Tanh", {}, {}, [](double x) { return std::tanh(x); }},
      {"Relu", {}, {}, [](double x) { return std::max(x, 0.0); }},
      {"Softsign", {}, {}, [](double x) { return x / (1 + std::fabs(x)); }},
      {"Softplus", {}, {}, [](double x) { return std::log(1 + std::exp(x)); }},
      {"LeakyRelu", {}, {}, [](double x) { return x < 0 ? 0.01 * x : x; }},
      {"LeakyRelu", {.5f}, {}, [](double x) { return x < 0 ? .5 * x : x; }},
      {"ThresholdedRelu", {}, {}, [](double x) { return x > 1 ? x : 0; }},
      {"ThresholdedRelu", {.5f}, {}, [](double x) { return x > .5 ? x : 0; }},
      {"Elu", {}, {}, [](double x) { return x < 0 ? std::expm1(x) : x; }},
      {"Elu", {2}, {}, [](double x) { return x < 0 ? 2 * std::expm1(x) : x; }},
      {"HardSigmoid",
       {},
       {},
       [](double x) { return std::clamp(.2 * x + .5, 0.0, 1.0); }},
      {"HardSigmoid",
       {.5f},
       {.25f},
       [](double x) { return std::clamp(.5 * x + .25, 0.0, 1.0); }},
      {"Affine", {}, {}, [](double x) { return x; }},
      {"Affine", {.5f}, {3}, [](double x) { return .5 * x + 3; }},
      {"ScaledTanh",
       {.5f},
       {3},
       [](double x) { return .5 * std::tanh(3 * x); }},
  };
  const std::vector<float> x = {-3, -0.7f, 0.3f, 0.8f, 2.5f};
  for (const auto& row : kTable) {
    Attributes attributes = {{"activations", Strings{row.name}}};
    if (!row.alpha.empty()) attributes["activation_alpha"] = row.alpha;
    if (!row.beta.empty()) attributes["activation_beta"] = row.beta;
    std::vector<double> y = OneStep("RNN", 1, attributes, x);
    ASSERT_EQ(y.size(), x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      EXPECT_NEAR(y[i], row.f(x[i]), 1e-6) << row.name << "(" << x[i] << ")";
    }
  }
}

TEST(UnrollRecurrent, ActivationsTakeAlphaAndBetaInOrder) {
  Attributes attributes = {
      {"activations", Strings{"LeakyRelu", "Sigmoid", "Affine"}},
      {"activation_alpha", std::vector<float>{.5f, 3}},
      {"activation_beta", std::vector<float>{.25f}}};
  double x = -0.75;
  double gate = .5 * x;
  double c = gate / (1 + std::exp(-x));
  EXPECT_NEAR(OneStep("LSTM", 4, attributes, {-0.75f})[0], gate * (3 * c + .25),
              1e-6);
}

TEST(UnrollRecurrent, OneProductForAllInputsAndOneForEveryStep) {
  Model m;
  Build({"", "LSTM", {{"direction", "bidirectional"}}, kAll}, m);
  for (const char* name : {"in1", "in2"}) {
    m.graph.Find(name)->role = Role::kParameter;
  }
  UnrollRecurrent(m.graph);
  std::map<std::string, std::vector<int64_t>> rows;
  for (const Node& node : m.graph.nodes()) {
    if (!node.Is("Gemm")) continue;
    const Value* weight = WeightBehind(node.in(1));
    ASSERT_NE(weight, nullptr) << node.name;
    rows[weight->name].push_back(node.in(0)->dim(0));
    EXPECT_EQ(ModulePath(node), "net");
  }
  EXPECT_EQ(rows["in1"], std::vector<int64_t>(2, kSteps * kBatch));
  EXPECT_EQ(rows["in2"], std::vector<int64_t>(2 * kSteps, kBatch));
}

// The kernel refuses such lengths; a graph that does not know them can't.
TEST(UnrollRecurrent, FedLengthsOutOfRangeCountAsTheNearestInRange) {
  Case c = {"", "GRU", {{"direction", "reverse"}}, {3, 5}, {7, -1, 2}, true};
  Model m, clamped;
  Build(c, m);
  c.lengths = {kSteps, 0, 2};
  Build(c, clamped);
  UnrollRecurrent(m.graph);
  auto got = RunGraph(m.graph, m.feeds);
  auto want = RunGraph(clamped.graph, clamped.feeds);
  for (const char* name : {"out0", "out1"}) {
    EXPECT_LE(LargestDifference(got.at(name), want.at(name)), 2e-6) << name;
  }
}

TEST(UnrollRecurrent, BadOperandsAndAttributes) {
  auto fails = [](Case c, auto change) {
    Model m;
    Build(c, m);
    change(m);
    EXPECT_THROW(UnrollRecurrent(m.graph), Error) << c.op;
  };
  auto attribute = [](const char* key, Attribute value) {
    return [=](Model& m) { m.node->attributes[key] = value; };
  };
  auto reshape = [](const char* name, std::optional<Shape> shape) {
    return [=](Model& m) { m.graph.Find(name)->shape = shape; };
  };
  for (const char* op : {"LSTM", "GRU", "RNN"}) {
    Case good = {"", op, {}, Operands(op), {2, 5, 0}};
    for (const char* name : {"in0", "in1", "in2", "in3", "in5", "lengths"}) {
      fails(good, reshape(name, std::nullopt));
      fails(good, reshape(name, Shape{kBatch, 2}));
    }
    fails({"", op}, reshape("in0", Shape{1 << 17, kBatch, kInputs}));
    fails(good, attribute("direction", "sideways"));
    fails(good, attribute("direction", "bidirectional"));
    fails(good, attribute("layout", int64_t{2}));
    fails(good, attribute("hidden_size", kHidden + 1));
    fails(good, attribute("clip", -1.0f));
    fails(good, attribute("activations", Strings(5, "Tanh")));
    size_t each = Activations(op);
    fails(good, attribute("activations", Strings(each, "Gelu")));
    fails(good, attribute("activations", Strings(each, "ScaledTanh")));
    fails({"", op, {}, {}, {2, 6, 0}}, [](Model&) {});
    fails({"", op, {}, {}, {2, -1, 0}}, [](Model&) {});
  }
  for (const char* name : {"in6", "in7"}) {
    fails({"", "LSTM", {}, kAll}, reshape(name, Shape{kBatch, 2}));
  }
}

}  // namespace
}  // namespace onnx_fp8
