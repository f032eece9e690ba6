// SPDX-License-Identifier: Apache-2.0
#include "optimizers/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "base/check.h"
#include "data/safetensors.h"
#include "graph/passes/early_updates.h"
#include "providers/cpu/cpu_provider.h"
#include "tests/support/paths.h"

namespace onnx_fp8 {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Runs a graph node by node and keeps its state.
class Runner {
 public:
  explicit Runner(Graph& graph) : graph_(graph) {
    for (const StateBinding& binding : graph.state) {
      state_[binding.state] = binding.state->data.Clone();
    }
  }

  void Step(const TensorMap& feeds) {
    values_ = state_;
    for (const auto& [name, tensor] : feeds) {
      values_[graph_.Find(name)] = tensor;
    }
    for (const Node& node : graph_.nodes()) {
      std::vector<Tensor> inputs;
      for (const Value* value : node.inputs()) {
        auto it = values_.find(value);
        inputs.push_back(it != values_.end() ? it->second : value->data);
      }
      std::vector<Tensor> outputs = evaluator_->Evaluate(node, inputs);
      for (size_t i = 0; i < outputs.size(); ++i) {
        values_[node.out(i)] = outputs[i];
      }
    }
    for (const StateBinding& binding : graph_.state) {
      state_[binding.state] = values_.at(binding.next);
    }
  }

  const Tensor& At(const Value* value) const { return values_.at(value); }
  const Tensor& State(const std::string& name) const {
    return state_.at(graph_.Find(name));
  }
  const std::map<const Value*, Tensor>& state() const { return state_; }

 private:
  Graph& graph_;
  std::unique_ptr<Evaluator> evaluator_ = MakeCpuEvaluator();
  std::map<const Value*, Tensor> state_;
  std::map<const Value*, Tensor> values_;
};

struct Case {
  const char* name;
  OptimizerSpec spec;
};

// The settings of data/make.py.
std::vector<Case> Cases() {
  return {
      {"sgd", {.kind = "sgd", .lr = 0.1}},
      {"sgd_decay", {.kind = "sgd", .lr = 0.1, .weight_decay = 0.1}},
      {"momentum", {.kind = "sgd", .lr = 0.05, .momentum = 0.9}},
      {"nesterov",
       {.kind = "sgd",
        .lr = 0.05,
        .weight_decay = 0.01,
        .momentum = 0.9,
        .nesterov = true,
        .clip_norm = 1}},
      {"adam", {.kind = "adam", .lr = 0.01}},
      {"adam_decay",
       {.kind = "adam",
        .lr = 0.01,
        .beta1 = 0.8,
        .beta2 = 0.95,
        .eps = 1e-4,
        .weight_decay = 0.1}},
      {"adamw", {}},
      {"adamw_clip",
       {.lr = 0.02,
        .beta1 = 0.7,
        .beta2 = 0.97,
        .weight_decay = 0.2,
        .clip_norm = 0.5}},
  };
}

// Row i of a (steps, n) tensor.
Tensor RowOf(const Tensor& t, int64_t i, DType dtype) {
  int64_t n = t.dim(1);
  std::vector<double> row(t.data<double>() + i * n,
                          t.data<double>() + (i + 1) * n);
  return ConvertTo(Tensor::From<double>({n}, row), dtype);
}

class Traces
    : public testing::TestWithParam<std::tuple<size_t, DType, double>> {};

TEST_P(Traces, FollowPyTorch) {
  auto [index, dtype, tolerance] = GetParam();
  Case c = Cases()[index];
  TensorMap trace =
      ReadSafetensors(SourcePath("tests/optimizers/data/traces.safetensors"));
  auto at = [&](const std::string& what) -> const Tensor& {
    return trace.at(std::string(c.name) + "." + what);
  };
  Graph graph;
  std::vector<ParameterGradient> parameters;
  for (std::string i : {"0", "1"}) {
    Value* p =
        graph.AddInitializer("p" + i, ConvertTo(at("start." + i), dtype));
    Value* g = graph.AddInput("g" + i, dtype, p->data.shape());
    parameters.push_back({p, g, "p" + i});
  }
  OptimizerValues values = AppendOptimizer(graph, parameters, c.spec);
  Runner runner(graph);
  for (int64_t step = 0; step < 20; ++step) {
    runner.Step({{"g0", RowOf(at("grads.0"), step, dtype)},
                 {"g1", RowOf(at("grads.1"), step, dtype)}});
    double norm = DoubleAt(at("norms"), step);
    EXPECT_NEAR(DoubleAt(runner.At(values.grad_norm), 0), norm, 1e-6 * norm);
    for (std::string i : {"0", "1"}) {
      Tensor expected = RowOf(at("params." + i), step, DType::kDouble);
      const Tensor& got = runner.State("p" + i);
      for (int64_t k = 0; k < got.size(); ++k) {
        double want = DoubleAt(expected, k);
        EXPECT_NEAR(DoubleAt(got, k), want,
                    tolerance * std::max(1.0, std::abs(want)))
            << "step " << step + 1 << " p" << i << "[" << k << "]";
      }
    }
  }
  EXPECT_EQ(IntAt(runner.State("optimizer.step"), 0), 20);
  EXPECT_EQ(IntAt(runner.State("optimizer.skipped"), 0), 0);
}

// In double the remaining error is that lr and attributes are floats (6e-8
// relative) over 20 steps; in float it is the rounding of 20 updates.
INSTANTIATE_TEST_SUITE_P(All, Traces,
                         testing::Combine(testing::Range<size_t>(0, 8),
                                          testing::Values(DType::kDouble),
                                          testing::Values(4e-7)),
                         [](const auto& info) {
                           return std::string(
                               Cases()[std::get<0>(info.param)].name);
                         });
INSTANTIATE_TEST_SUITE_P(AllFloat, Traces,
                         testing::Combine(testing::Range<size_t>(0, 8),
                                          testing::Values(DType::kFloat),
                                          testing::Values(4e-6)),
                         [](const auto& info) {
                           return std::string(
                               Cases()[std::get<0>(info.param)].name);
                         });

struct Small {
  Graph graph;
  std::vector<ParameterGradient> parameters;

  Small() {
    Add("w", {2}, "fc.weight");
    Add("b", {1}, "fc.bias");
  }
  void Add(const std::string& name, const Shape& shape, const char* fqn) {
    Tensor data = Tensor::Zeros(DType::kFloat, shape);
    for (int64_t i = 0; i < data.size(); ++i) data.data<float>()[i] = 1;
    Value* p = graph.AddInitializer(name, data);
    Value* g = graph.AddInput("d" + name, DType::kFloat, shape);
    parameters.push_back({p, g, fqn});
  }
};

Tensor Floats(const std::vector<float>& values) {
  return Tensor::From<float>({static_cast<int64_t>(values.size())}, values);
}

TEST(AppendOptimizer, ASkippedStepChangesNothingButItsCount) {
  for (const Case& c : Cases()) {
    Small with, without;
    OptimizerValues values =
        AppendOptimizer(with.graph, with.parameters, c.spec);
    AppendOptimizer(without.graph, without.parameters, c.spec);
    Runner a(with.graph), b(without.graph);
    TensorMap good = {{"dw", Floats({1, -2})}, {"db", Floats({0.5f})}};
    for (float bad :
         {kInfinity, -kInfinity, static_cast<float>(std::nan(""))}) {
      a.Step({{"dw", Floats({1, bad})}, {"db", Floats({0.5f})}});
      EXPECT_EQ(IntAt(a.At(values.ok), 0), 0);
      a.Step(good);
      EXPECT_EQ(IntAt(a.At(values.ok), 0), 1);
      b.Step(good);
    }
    EXPECT_EQ(IntAt(a.State("optimizer.skipped"), 0), 3);
    EXPECT_EQ(IntAt(a.State("optimizer.step"), 0), 3);
    for (const auto& [value, tensor] : b.state()) {
      if (value->name == "optimizer.skipped") continue;
      EXPECT_TRUE(Identical(a.State(value->name), tensor)) << value->name;
    }
  }
}

// The element's parameter and moments stay, those beside it move.
TEST(AppendOptimizer, AReleasedGradientThatIsNotFiniteMovesNothing) {
  std::vector<Case> cases = Cases();
  cases.push_back({"adamw_hf", {.kind = "adamw_hf", .weight_decay = 0.1}});
  for (Case& c : cases) {
    c.spec.clip_norm = 0;
    c.spec.release_gradients = true;
    SCOPED_TRACE(c.name);
    Small s, finite;
    for (Small* one : {&s, &finite}) {
      Builder b(one->graph);
      AppendOptimizer(one->graph, one->parameters, c.spec, {}, nullptr, {}, {},
                      b.Op("Identity", {b.Constant(Tensor::Scalar(true))}));
      RunUpdatesEarly(one->graph);
    }
    Runner a(s.graph), b(finite.graph);
    const TensorMap good = {{"dw", Floats({1, -2})}, {"db", Floats({0.5f})}};
    a.Step(good);
    b.Step(good);
    std::map<std::string, Tensor> before;
    for (const auto& [value, tensor] : a.state()) {
      before[value->name] = tensor.Clone();
    }
    for (float bad :
         {kInfinity, -kInfinity, static_cast<float>(std::nan(""))}) {
      a.Step({{"dw", Floats({3, bad})}, {"db", Floats({bad})}});
      b.Step({{"dw", Floats({3, 1})}, {"db", Floats({1})}});
      for (const auto& [value, tensor] : b.state()) {
        const Tensor& got = a.State(value->name);
        if (tensor.rank() == 0) {
          EXPECT_TRUE(Identical(got, tensor)) << value->name;
          continue;
        }
        const Tensor& old = before.at(value->name);
        // dw is bad in its second element, db in its only one.
        const int64_t good_elements = tensor.size() - 1;
        for (int64_t i = 0; i < tensor.size(); ++i) {
          EXPECT_EQ(DoubleAt(got, i),
                    DoubleAt(i < good_elements ? tensor : old, i))
              << value->name << "[" << i << "]";
        }
      }
    }
  }
}

TEST(AppendOptimizer, NoNormClipsReleasedGradients) {
  Small s;
  EXPECT_THROW(AppendOptimizer(s.graph, s.parameters,
                               {.clip_norm = 1, .release_gradients = true}),
               Error);
}

// SGD with a rate of 1 moves a weight by its gradient times the factor.
TEST(AppendOptimizer, TheNormOfTheStepBeforeClips) {
  constexpr double kLimit = 0.5;
  struct Gradients {
    float dw0, dw1, db, amax;
  };
  const Gradients steps[] = {
      {3, 4, 0, 1},          // the first is not clipped
      {0, 1, 0, 1},          // clipped by the norm 5
      {kInfinity, 1, 2, 1},  // without a finite norm
      {6, 8, 0, kInfinity},  // skipped
      {0, 0.25f, 0, 1},      // clipped by the last norm that was finite
      {1, 0, 0, 1},          // 0.25 is below the limit
      {0, 0, 0, 1},          // clipped by 1; its own norm is 0
      {0, 2, 0, 1},
  };
  for (bool releases : {false, true}) {
    for (float loss_scale : {1.0f, 8.0f}) {
      Small s;
      Value* amax = s.graph.AddInput("amax", DType::kFloat, Shape{});
      Value* scale = s.graph.AddInput("scale", DType::kFloat, Shape{});
      AppendOptimizer(s.graph, s.parameters,
                      {.kind = "sgd",
                       .lr = 1,
                       .clip_norm = kLimit,
                       .clip_previous = true,
                       .release_gradients = releases},
                      {amax}, scale);
      if (releases) RunUpdatesEarly(s.graph);
      Runner runner(s.graph);
      double previous = 0, expected[] = {1, 1, 1};
      for (const auto& [dw0, dw1, db, amax_now] : steps) {
        runner.Step({{"dw", Floats({dw0 * loss_scale, dw1 * loss_scale})},
                     {"db", Floats({db * loss_scale})},
                     {"amax", Tensor::Scalar(amax_now)},
                     {"scale", Tensor::Scalar(loss_scale)}});
        const double factor =
            previous == 0 ? 1 : std::min(1.0, kLimit / (previous + 1e-6));
        const double norm = std::hypot(dw0, dw1, db);
        const bool finite = std::isfinite(norm);
        if (std::isfinite(amax_now) && (finite || releases)) {
          int at = 0;
          for (double gradient : {dw0, dw1, db}) {
            double& weight = expected[at++];
            if (std::isfinite(gradient)) weight -= factor * gradient;
          }
          if (finite) previous = norm;
        }
        EXPECT_NEAR(DoubleAt(runner.State("w"), 0), expected[0], 2e-6);
        EXPECT_NEAR(DoubleAt(runner.State("w"), 1), expected[1], 2e-6);
        EXPECT_NEAR(DoubleAt(runner.State("b"), 0), expected[2], 2e-6);
        EXPECT_NEAR(DoubleAt(runner.State("optimizer.previous_norm"), 0),
                    previous, 2e-6);
      }
    }
  }
}

// Not even a limit below the 1e-6 that is added to the norm.
TEST(AppendOptimizer, NothingClipsTheFirstStepByTheNormBefore) {
  Small s;
  AppendOptimizer(
      s.graph, s.parameters,
      {.kind = "sgd", .lr = 1, .clip_norm = 1e-9, .clip_previous = true});
  Runner runner(s.graph);
  const TensorMap feeds = {{"dw", Floats({0, 0})}, {"db", Floats({0.25f})}};
  runner.Step(feeds);
  EXPECT_EQ(runner.State("b").data<float>()[0], 0.75f);
  runner.Step(feeds);
  EXPECT_EQ(runner.State("b").data<float>()[0], 0.75f);
}

TEST(AppendOptimizer, TheNormOfTheStepBeforeLetsUpdatesRunEarly) {
  Small s;
  Builder b(s.graph);
  for (ParameterGradient& p : s.parameters) p.grad = b.Op("Neg", {p.grad});
  Value* amax = s.graph.AddInput("amax", DType::kFloat, Shape{});
  OptimizerValues values = AppendOptimizer(
      s.graph, s.parameters,
      {.clip_norm = 1, .clip_previous = true, .release_gradients = true},
      {amax});
  RunUpdatesEarly(s.graph);
  std::map<const Node*, int> place;
  for (const Node& node : s.graph.nodes()) {
    place.emplace(&node, static_cast<int>(place.size()));
  }
  std::map<std::string, const Node*> update;
  for (const StateBinding& binding : s.graph.state) {
    update[binding.state->name] = binding.next->producer;
  }
  const int last_gradient = place.at(s.parameters[1].grad->producer);
  EXPECT_LT(place.at(update.at("w")), last_gradient);
  EXPECT_LT(place.at(update.at("w.exp_avg")), last_gradient);
  EXPECT_GT(place.at(values.grad_norm->producer), last_gradient);
  EXPECT_GT(place.at(update.at("optimizer.previous_norm")), last_gradient);
}

TEST(AppendOptimizer, AnInfiniteAmaxSkipsTheStep) {
  Small s;
  Value* amax = s.graph.AddInput("amax", DType::kFloat, Shape{});
  Value* per_row = s.graph.AddInput("per_row", DType::kFloat, Shape{3});
  Value* none = s.graph.AddInput("none", DType::kFloat, Shape{0});
  OptimizerValues values =
      AppendOptimizer(s.graph, s.parameters, {}, {amax, per_row, none});
  Runner runner(s.graph);
  auto ok = [&](float a, float row) {
    runner.Step({{"dw", Floats({1, 1})},
                 {"db", Floats({1})},
                 {"amax", Tensor::Scalar(a)},
                 {"per_row", Floats({0, row, 1})},
                 {"none", Floats({})}});
    return IntAt(runner.At(values.ok), 0) == 1;
  };
  EXPECT_TRUE(ok(3e38f, 3e38f));
  EXPECT_FALSE(ok(kInfinity, 1));
  EXPECT_FALSE(ok(1, kInfinity));
  EXPECT_EQ(IntAt(runner.State("optimizer.skipped"), 0), 2);
}

TEST(AppendOptimizer, GroupsByPattern) {
  Small s;
  OptimizerSpec spec{.kind = "sgd", .lr = 1};
  spec.weight_decay = 0.5;
  spec.groups = {{.pattern = "*.bias", .weight_decay = 0.0, .lr_scale = 0.5},
                 {.pattern = "b", .weight_decay = 9.0}};
  AppendOptimizer(s.graph, s.parameters, spec);
  Runner runner(s.graph);
  runner.Step({{"dw", Floats({0, 0.25f})}, {"db", Floats({0.25f})}});
  // w: 1 - (g + 0.5); b: 1 - 0.5 g
  EXPECT_TRUE(Identical(runner.State("w"), Floats({0.5f, 0.25f})));
  EXPECT_TRUE(Identical(runner.State("b"), Floats({0.875f})));
}

// A part of a matrix is one; norms and biases have one axis.
TEST(AppendOptimizer, MatricesAloneDecay) {
  OptimizerSpec spec{.kind = "sgd", .lr = 1, .weight_decay = 0.5};
  const Shape vector = {4}, matrix = {4, 4}, kernel = {1, 1, 4};
  EXPECT_EQ(DecayOf(spec, "norm", "norm", vector), 0.5);
  spec.decay = "matrices";
  EXPECT_EQ(DecayOf(spec, "norm", "norm", vector), 0);
  EXPECT_EQ(DecayOf(spec, "norm", "norm", {}), 0);
  EXPECT_EQ(DecayOf(spec, "fc", "fc", matrix), 0.5);
  EXPECT_EQ(DecayOf(spec, "fc", "fc", kernel), 0.5);
  // The first group that fits decides, if it has a decay.
  spec.groups = {{.pattern = "norm", .weight_decay = 0.25},
                 {.pattern = "*", .lr_scale = 0.5}};
  EXPECT_EQ(DecayOf(spec, "norm", "val_1", vector), 0.25);
  EXPECT_EQ(DecayOf(spec, "bias", "val_2", vector), 0);
  EXPECT_EQ(DecayOf(spec, "fc", "val_3", matrix), 0.5);
  spec.groups.clear();
  Small s;
  for (ParameterGradient& p : s.parameters) {
    if (p.param->name == "w") p.whole = matrix;
  }
  AppendOptimizer(s.graph, s.parameters, spec);
  Runner runner(s.graph);
  runner.Step({{"dw", Floats({0, 0.25f})}, {"db", Floats({0.25f})}});
  // w: 1 - (g + 0.5); b: 1 - g
  EXPECT_TRUE(Identical(runner.State("w"), Floats({0.5f, 0.25f})));
  EXPECT_TRUE(Identical(runner.State("b"), Floats({0.75f})));
}

TEST(AppendOptimizer, LearningRateIsAnInputWithADefault) {
  Small s;
  OptimizerSpec spec{.kind = "sgd", .lr = 0.5};
  OptimizerValues values = AppendOptimizer(s.graph, s.parameters, spec);
  EXPECT_TRUE(values.lr->is_input);
  EXPECT_FALSE(values.lr->is_constant());
  EXPECT_EQ(values.lr->data.data<float>()[0], 0.5f);
  Runner runner(s.graph);
  TensorMap feeds = {{"dw", Floats({1, 1})}, {"db", Floats({1})}};
  runner.Step(feeds);
  EXPECT_EQ(runner.State("b").data<float>()[0], 0.5f);
  feeds["lr"] = Tensor::Scalar(0.25f);
  runner.Step(feeds);
  EXPECT_EQ(runner.State("b").data<float>()[0], 0.25f);
}

TEST(AppendOptimizer, TheModelKeepsItsNames) {
  Small s;
  std::vector<std::string> taken = {"lr", "grad_norm", "optimizer.step",
                                    "w.exp_avg", "w.next"};
  for (const std::string& name : taken) {
    s.graph.AddInput(name, DType::kFloat, Shape{});
  }
  OptimizerValues values = AppendOptimizer(s.graph, s.parameters, {});
  for (const std::string& name : taken) {
    EXPECT_EQ(s.graph.Find(name)->producer, nullptr);
    EXPECT_FALSE(s.graph.Find(name)->is_initializer());
  }
  EXPECT_EQ(values.lr->name, "lr_1");
  std::set<std::string> bound;
  for (const StateBinding& binding : s.graph.state) {
    bound.insert(binding.state->name);
    EXPECT_EQ(*binding.state->shape, *binding.next->shape);
    EXPECT_EQ(binding.state->dtype, binding.next->dtype);
  }
  EXPECT_EQ(bound,
            (std::set<std::string>{"w", "b", "w.exp_avg_1", "w.exp_avg_sq",
                                   "b.exp_avg", "b.exp_avg_sq",
                                   "optimizer.step_1", "optimizer.skipped"}));
}

// The first group that matches a parameter decides all of its settings.
TEST(Groups, TheFirstThatMatchesCounts) {
  auto moved = [](const std::vector<ParameterGroup>& groups) {
    Small s;
    OptimizerSpec spec{.kind = "sgd", .lr = 0.5};
    spec.groups = groups;
    AppendOptimizer(s.graph, s.parameters, spec);
    Runner runner(s.graph);
    runner.Step({{"dw", Floats({1, 1})}, {"db", Floats({1})}});
    return runner.State("b").data<float>()[0];
  };
  const ParameterGroup still{.pattern = "b", .lr_scale = 0};
  const ParameterGroup fast{.pattern = "*", .lr_scale = 2};
  const ParameterGroup other{.pattern = "*", .weight_decay = 0};
  EXPECT_EQ(moved({}), 0.5f);
  EXPECT_EQ(moved({still, fast}), 1.0f);
  EXPECT_EQ(moved({fast, still}), 0.0f);
  EXPECT_EQ(moved({other, fast}), 0.5f);
}

// A group must match one of the model's parameters, not of one graph's.
TEST(Groups, MatchAName) {
  OptimizerSpec spec;
  spec.groups = {{"*.bias"}, {"val_1"}};
  CheckGroups(spec, {"fc.bias", "fc.weight", "val_1"}, "m.onnx");
  spec.groups.push_back({"*.wieght"});
  try {
    CheckGroups(spec, {"fc.bias", "fc.weight", "val_1"}, "m.onnx");
    ADD_FAILURE() << "expected an error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "[m.onnx] expected trained parameters that match "
                 "\"*.wieght\", got none; `inspect()` lists them");
  }
}

TEST(AppendOptimizer, RefusesWhatDoesNotFit) {
  auto message = [](auto change) -> std::string {
    Small s;
    OptimizerSpec spec;
    change(s, spec);
    try {
      AppendOptimizer(s.graph, s.parameters, spec);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  struct Row {
    std::string got, expected;
  };
  const Row rows[] = {
      {message([](Small& s, auto&) { s.parameters.clear(); }), "got none"},
      {message(
           [](Small& s, auto&) { s.parameters.push_back(s.parameters[0]); }),
       "[w] is listed twice"},
      {message([](Small& s, auto&) {
         std::swap(s.parameters[0].grad, s.parameters[1].grad);
       }),
       "[w] expected a gradient of the parameter's shape"},
      {message([](Small& s, auto&) {
         s.parameters[0].param =
             s.graph.AddInitializer("h", Tensor::Zeros(DType::kFloat16, {2}));
       }),
       "[h] expected a parameter of float or double, got float16"},
      {message([](Small&, OptimizerSpec& o) { o.lr = -1; }),
       "expected lr in [0, inf), got -1"},
      {message([](Small&, OptimizerSpec& o) { o.lr = std::nan(""); }),
       "expected lr"},
      {message([](Small&, OptimizerSpec& o) { o.beta2 = 1; }),
       "expected beta2 in [0, 1), got 1"},
      {message([](Small&, OptimizerSpec& o) { o.eps = -1; }), "expected eps"},
      {message([](Small&, OptimizerSpec& o) { o.decay = "none"; }),
       "expected decay of all, matrices or layers, got none"},
      {message([](Small&, OptimizerSpec& o) { o.weight_decay = -1; }),
       "expected weight_decay"},
      {message([](Small&, OptimizerSpec& o) { o.clip_norm = -1; }),
       "expected clip_norm"},
      {message([](Small&, OptimizerSpec& o) { o.clip_previous = true; }),
       "expected clip_norm above 0 with clip_previous, got 0"},
      {message([](Small&, OptimizerSpec& o) { o.nesterov = true; }),
       "expected momentum above 0 with Nesterov"},
      {message([](Small&, OptimizerSpec& o) {
         o.groups = {{.pattern = "*", .lr_scale = -1}};
       }),
       "expected lr_scale"},
  };
  for (const Row& row : rows) {
    EXPECT_NE(row.got.find(row.expected), std::string::npos)
        << "expected: " << row.expected << "\ngot:      " << row.got;
  }
}

}  // namespace
}  // namespace onnx_fp8
