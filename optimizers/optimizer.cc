// SPDX-License-Identifier: Apache-2.0
#include "optimizers/optimizer.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>

#include "base/check.h"
#include "base/glob.h"
#include "graph/builder.h"
#include "graph/moment_shapes.h"
#include "graph/schemas/draws.h"
#include "onnx_fp8/option_error.h"
#include "optimizers/ema.h"
#include "optimizers/master_format.h"
#include "optimizers/own_optimizer.h"
#include "optimizers/update.h"

namespace onnx_fp8 {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

const std::vector<OptimizerRow>& Optimizers() {
  static const OptimizerRegistry registry = [] {
    OptimizerRegistry r;
    RegisterAll(r);
    return r;
  }();
  return registry.rows();
}

const OptimizerRow& Find(const std::string& kind) {
  if (IsOptimizerFile(kind)) return RowOfOptimizerFiles();
  std::string names;
  for (const OptimizerRow& row : Optimizers()) {
    if (kind == row.name) return row;
    names += (names.empty() ? "" : ", ") + std::string(row.name);
  }
  Fail("expected one of the optimizers ", names, " or FILE.onnx, got \"", kind,
       "\"");
}

// The row of the optimizer that updates the parameter.
const OptimizerRow& RowOf(const OptimizerSpec& spec,
                          const ParameterGradient& parameter) {
  const OptimizerRow& row = Find(spec.kind);
  const Shape& whole =
      parameter.whole.empty() ? *parameter.param->shape : parameter.whole;
  const bool rest = parameter.of_rest || whole.size() != 2;
  return rest && !row.rest.empty() ? Find(std::string(row.rest)) : row;
}

// The range excludes `limit` itself.
void CheckRange(const char* name, double value, double limit) {
  Check(value >= 0 && value < limit, "expected ", name, " in [0, ", limit,
        "), got ", value);
}

Value* Named(Graph& graph, Value* value, const std::string& name) {
  graph.Rename(value, graph.FreshName(name));
  return value;
}

Value* Total(Builder& b, const std::vector<Value*>& values) {
  return values.size() == 1 ? values[0] : b.Op("Sum", values);
}

// `inverse` of the loss scale; null: 1.
Value* GradNorm(Builder& b, const std::vector<ParameterGradient>& parameters,
                Value* inverse, const SumOfParts& sum_of_parts) {
  // By the axes that divide the parameters.
  std::map<std::vector<std::string>, std::vector<Value*>> squares;
  for (const ParameterGradient& p : parameters) {
    Value* grad = b.Cast(p.grad, DType::kFloat);
    squares[p.divided_by].push_back(
        b.Op("ReduceSumSquare", {grad}, {{"keepdims", int64_t{0}}}));
  }
  std::vector<Value*> sums;
  for (const auto& [axes, values] : squares) {
    Value* sum = Total(b, values);
    sums.push_back(axes.empty() ? sum : sum_of_parts(b, sum, axes));
  }
  Value* norm = b.Op("Sqrt", {Total(b, sums)});
  if (inverse) norm = b.Mul(norm, inverse);
  return Named(b.graph(), norm, "grad_norm");
}

// A NaN is not below infinity either.
Value* IsFinite(Builder& b, Value* x) {
  return b.Op("Less", {x, b.Scalar(kInfinity, x)});
}

// `norm`: null if it is not known yet.
Value* AllFinite(Builder& b, Value* norm, const std::vector<Value*>& flags) {
  Value* ok = norm ? IsFinite(b, norm) : b.Constant(Tensor::Scalar(true));
  std::vector<Value*> scalars;
  for (Value* flag : flags) {
    Check(flag->dtype == DType::kFloat && flag->shape, "expected an amax of ",
          "known shape in float, got ", flag->name);
    if (NumElements(*flag->shape) == 0) continue;
    scalars.push_back(flag->shape->empty() ? flag
                                           : b.Op("ReduceMax", {flag},
                                                  {{"keepdims", int64_t{0}}}));
  }
  if (!scalars.empty()) {
    Value* max = scalars.size() == 1 ? scalars[0] : b.Op("Max", scalars);
    ok = b.Op("And", {ok, IsFinite(b, max)});
  }
  return ok;
}

// Reciprocal and Mul, not Div: stock ONNX Runtime turns Div(1, x) and a Mul of
// an inlined body into an op that it then refuses.
Value* ClipFactor(Builder& b, Value* norm, double clip_norm) {
  if (clip_norm == 0) return b.Constant(Tensor::Scalar(1.0f));
  Value* over = b.Op("Reciprocal", {b.Add(norm, b.Scalar(1e-6, norm))});
  Value* scale = b.Mul(over, b.Scalar(clip_norm, norm));
  return b.Op("Min", {scale, b.Scalar(1, norm)});
}

// The norm of the step before, as state. 0: there is none yet.
Value* PreviousNorm(Builder& b, const StateNames& names,
                    const OptimizerValues& values) {
  Value* norm = values.grad_norm;
  Value* previous = AddState(b.graph(), names, kPreviousNorm,
                             Role::kGradientNorm, Tensor::Scalar(0.0f));
  Value* counts = b.Op("And", {values.ok, IsFinite(b, norm)});
  Bind(b.graph(), previous, b.Op("Where", {counts, norm, previous}));
  return previous;
}

// The factor of all gradients. No Where chooses it: nodes that only one value
// of a flag needs would wait for the flag.
Value* ClipFactor(Builder& b, const OptimizerSpec& spec,
                  const StateNames& names, const OptimizerValues& values) {
  if (!spec.clip_previous) {
    return ClipFactor(b, values.grad_norm, spec.clip_norm);
  }
  Value* norm = PreviousNorm(b, names, values);
  Value* none = b.Op("Equal", {norm, b.Scalar(0, norm)});
  return b.Op("Max", {ClipFactor(b, norm, spec.clip_norm),
                      b.Cast(none, DType::kFloat)});
}

void CheckParameters(const std::vector<ParameterGradient>& parameters,
                     const std::string& file) {
  Check(!parameters.empty(), "[", file,
        "] expected parameters to train, got none; `inspect()` tells why");
  std::set<const Value*> seen;
  for (const ParameterGradient& p : parameters) {
    const std::string& name = p.param->name;
    Check(seen.insert(p.param).second, "[", name,
          "] is listed twice as a parameter");
    Check(p.param->is_initializer() && (p.param->dtype == DType::kFloat ||
                                        p.param->dtype == DType::kDouble),
          "[", name, "] expected a parameter of float or double, got ",
          Name(p.param->dtype));
    Check(p.grad && p.grad->concrete() && *p.grad->shape == *p.param->shape,
          "[", name, "] expected a gradient of the parameter's shape");
  }
}

// Whether a moment of a parameter, or the parameter, is rounded stochastically.
bool Draws(const OptimizerSpec& spec,
           const std::vector<ParameterGradient>& parameters) {
  return std::ranges::any_of(parameters, [&](const ParameterGradient& p) {
    // Last: the states of an optimizer in a file are read from it.
    const bool moment =
        MomentDType(spec, p) != p.param->dtype &&
        std::ranges::count(RowOf(spec, p).moments(spec), kExpAvgSq) > 0;
    const bool master = DrawsMasters(spec) && p.param->dtype == DType::kFloat;
    return moment || master;
  });
}

void CheckMuon(const MuonSettings& muon) {
  constexpr double kNone = std::numeric_limits<double>::infinity();
  CheckRange("momentum of Muon", muon.momentum, kNone);
  CheckRange("eps of Muon", muon.eps, kNone);
  // PyTorch's limit.
  Check(muon.steps >= 0 && muon.steps < 100,
        "expected 0 to 99 steps of Muon's iteration, got ", muon.steps);
  for (double coefficient : muon.coefficients) {
    Check(std::isfinite(coefficient),
          "expected finite coefficients of Muon's iteration, got ",
          coefficient);
  }
  const std::vector<std::string> known = RateAdjustments();
  Check(std::ranges::count(known, muon.adjust_lr) > 0,
        "expected adjust_lr_fn original or match_rms_adamw, got ",
        muon.adjust_lr);
}

// Errors: settings that the file of an optimizer would have to know.
void CheckForFile(const OptimizerSpec& spec) {
  auto refuse = [&](const char* option) {
    throw OptionError(Concat("`", option, "`: expected none beside `optimizer=",
                             spec.kind, "`, whose file decides it"));
  };
  const OptimizerSpec usual;
  if (spec.weight_decay) refuse("weight_decay");
  if (spec.decay != usual.decay) refuse("decay");
  if (spec.beta1 != usual.beta1 || spec.beta2 != usual.beta2) refuse("betas");
  if (spec.eps != usual.eps) refuse("eps");
  if (spec.momentum != usual.momentum) refuse("momentum");
  if (spec.moments != "float32") refuse("moments");
  for (const ParameterGroup& group : spec.groups) {
    if (group.weight_decay) refuse("group");
  }
}

// The largest of the updates' amaxes; 0 in a step that is not ok, where they
// may be NaN. Null: there are none.
Value* LargestUpdate(Builder& b, const std::vector<Value*>& amaxes, Value* ok) {
  if (amaxes.empty()) return nullptr;
  Value* amax = amaxes.size() == 1 ? amaxes[0] : b.Op("Max", amaxes);
  Value* counted = b.Op("Where", {ok, amax, b.Scalar(0, amax)});
  return Named(b.graph(), counted, "update_amax");
}

}  // namespace

std::vector<std::string> OptimizerNames() {
  std::vector<std::string> names;
  for (const OptimizerRow& row : Optimizers()) names.emplace_back(row.name);
  return names;
}

void CheckOptimizer(const OptimizerSpec& spec) {
  constexpr double kNone = std::numeric_limits<double>::infinity();
  Find(spec.kind);
  CheckRange("lr", spec.lr, kNone);
  CheckRange("beta1", spec.beta1, 1);
  CheckRange("beta2", spec.beta2, 1);
  CheckRange("eps", spec.eps, kNone);
  CheckRange("weight_decay", spec.weight_decay.value_or(0), kNone);
  CheckRange("momentum", spec.momentum, kNone);
  CheckRange("clip_norm", spec.clip_norm, kNone);
  CheckMuon(spec.muon);
  if (IsOptimizerFile(spec.kind)) CheckForFile(spec);
  const std::vector<std::string> formats = MomentFormats();
  Check(std::ranges::count(formats, spec.moments) > 0,
        "expected moments float32, bfloat16 or fp8, got ", spec.moments);
  CheckMaster(spec);
  Check(!spec.clip_previous || spec.clip_norm > 0,
        "expected clip_norm above 0 with clip_previous, got 0");
  if (spec.release_gradients && spec.clip_norm > 0 && !spec.clip_previous) {
    throw OptionError(
        Concat("`release_gradients`: expected no `clip_norm`, because the norm "
               "of all gradients is known after the updates, got ",
               spec.clip_norm, "; `clip_norm=", spec.clip_norm,
               ":previous` clips by the norm of the step before"));
  }
  Check(spec.decay == kDecayOfAll || spec.decay == kDecayOfMatrices ||
            spec.decay == kDecayOfLayers,
        "expected decay of all, matrices or layers, got ", spec.decay);
  Check(!spec.nesterov || spec.momentum > 0,
        "expected momentum above 0 with Nesterov, got 0");
  CheckRange("ema", spec.ema, 1);
  Check(spec.ema_every >= 1, "expected ema_every of at least 1, got ",
        spec.ema_every);
  for (const ParameterGroup& group : spec.groups) {
    CheckRange("weight_decay", group.weight_decay.value_or(0), kNone);
    CheckRange("lr_scale", group.lr_scale.value_or(1), kNone);
  }
}

std::vector<std::string> MomentsOf(const OptimizerSpec& spec) {
  std::vector<std::string> moments = Find(spec.kind).moments(spec);
  if (const std::string rest = RestOf(spec); !rest.empty()) {
    std::ranges::copy(Find(rest).moments(spec), std::back_inserter(moments));
  }
  return moments;
}

std::vector<std::string> MomentsOf(const OptimizerSpec& spec, bool of_rest) {
  return Find(of_rest ? RestOf(spec) : spec.kind).moments(spec);
}

std::vector<std::string> RateAdjustments() {
  return {"original", "match_rms_adamw"};
}

std::string RestOf(const OptimizerSpec& spec) {
  return std::string(Find(spec.kind).rest);
}

double WeightDecayOf(const OptimizerSpec& spec) {
  return spec.weight_decay.value_or(Find(spec.kind).weight_decay);
}

const ParameterGroup* GroupOf(const OptimizerSpec& spec, const std::string& fqn,
                              const std::string& name) {
  auto group =
      std::ranges::find_if(spec.groups, [&](const ParameterGroup& one) {
        return MatchesGlob(one.pattern, fqn) || MatchesGlob(one.pattern, name);
      });
  return group == spec.groups.end() ? nullptr : &*group;
}

double DecayOf(const OptimizerSpec& spec, const std::string& fqn,
               const std::string& name, const Shape& whole, WeightUse use) {
  const ParameterGroup* group = GroupOf(spec, fqn, name);
  if (group && group->weight_decay) return *group->weight_decay;
  const bool decays =
      spec.decay == kDecayOfAll ||
      (spec.decay == kDecayOfMatrices && whole.size() >= 2) ||
      (spec.decay == kDecayOfLayers && use == WeightUse::kLayer);
  return decays ? WeightDecayOf(spec) : 0;
}

void CheckGroups(const OptimizerSpec& spec, const std::set<std::string>& names,
                 const std::string& file) {
  for (const ParameterGroup& group : spec.groups) {
    bool found = std::ranges::any_of(names, [&](const std::string& name) {
      return MatchesGlob(group.pattern, name);
    });
    Check(found, "[", file, "] expected trained parameters that match \"",
          group.pattern, "\", got none; `inspect()` lists them");
  }
}

std::vector<std::string> MomentFormats() {
  return {"float32", "bfloat16", "fp8"};
}

bool MayKeepCodes(const Shape& whole) {
  return whole.size() >= 2 && whole.back() >= kMomentBlock / 4 &&
         NumElements(whole) >= 4096;
}

DType MomentFormat(const OptimizerSpec& spec, DType parameter) {
  if (parameter != DType::kFloat || spec.moments == "float32") return parameter;
  return spec.moments == "bfloat16" ? DType::kBFloat16 : DType::kE4M3;
}

DType MomentDType(const OptimizerSpec& spec,
                  const ParameterGradient& parameter) {
  const Value& param = *parameter.param;
  const DType format = MomentFormat(spec, param.dtype);
  const Shape& whole = parameter.whole.empty() ? *param.shape : parameter.whole;
  const bool codes = MayKeepCodes(whole) && !parameter.cuts_blocks;
  return IsFloat8(format) && !codes ? param.dtype : format;
}

Value* AddState(Graph& graph, const StateNames& names, const std::string& name,
                Role role, Tensor initial) {
  Value* state = graph.AddInitializer(
      names ? names(name) : graph.FreshName(name), initial);
  state->role = role;
  return state;
}

Moment AddMoment(Graph& graph, const Update& update,
                 const std::string& moment) {
  const Shape& shape = *update.param->shape;
  Moment added = {update.param->name + "." + moment, moment == kExpAvgSq};
  added.kept = AddState(graph, update.names, added.name, Role::kMoment,
                        Tensor::Zeros(update.moments, shape));
  if (IsFloat8(update.moments)) {
    added.scale =
        AddState(graph, update.names, added.name + kMomentScale, Role::kMoment,
                 Tensor::Zeros(DType::kFloat, MomentScaleShape(shape)));
  }
  return added;
}

Value* Decoded(Builder& b, const Update& update, const Moment& moment) {
  if (!moment.scale) return b.Cast(moment.kept, update.param->dtype);
  return b.Op("DecodeMoment", {moment.kept, moment.scale},
              {{"squared", static_cast<int64_t>(moment.is_square)}}, kDomain);
}

void BindMoment(Builder& b, const Update& update, const Moment& moment,
                Value* next) {
  Graph& graph = b.graph();
  if (moment.scale) {
    std::vector<Value*> inputs = {next, moment.kept, moment.scale, update.ok};
    if (moment.is_square) {
      inputs.insert(inputs.end(), {update.seed, update.number});
    }
    std::vector<Value*> made = b.Ops(
        moment.is_square ? "EncodeSecondMoment" : "EncodeMoment", inputs, 2,
        moment.is_square ? DrawsOf(moment.name, update.places) : Attributes{},
        kDomain);
    Bind(graph, moment.kept, made[0]);
    return Bind(graph, moment.scale, made[1]);
  }
  const bool draws = update.moments == DType::kBFloat16 && moment.is_square;
  Bind(graph, moment.kept,
       draws ? b.Op("RoundStochastic", {next, update.seed, update.number},
                    DrawsOf(moment.name, update.places), kDomain)
             : b.Cast(next, update.moments));
}

void Bind(Graph& graph, Value* state, Value* next) {
  Named(graph, next, state->name + ".next");
  graph.state.push_back({state, next});
}

std::vector<Value*> AppendUpdate(Builder& b, const std::string& op,
                                 const Update& update,
                                 const std::vector<std::string>& moments,
                                 const std::vector<Value*>& scalars,
                                 Attributes attributes) {
  Graph& graph = b.graph();
  attributes["weight_decay"] = static_cast<float>(update.weight_decay);
  attributes["lr_scale"] = static_cast<float>(update.lr_scale);
  std::vector<Value*> inputs = {update.param,
                                b.Cast(update.grad, update.param->dtype)};
  std::vector<Moment> states;
  for (const std::string& moment : moments) {
    states.push_back(AddMoment(graph, update, moment));
    inputs.push_back(Decoded(b, update, states.back()));
  }
  inputs.insert(inputs.end(), scalars.begin(), scalars.end());
  std::vector<Value*> next =
      b.Ops(op, inputs, 1 + moments.size(), std::move(attributes), kDomain);
  next[0]->producer->name = update.name;
  Bind(graph, update.param, next[0]);
  for (size_t i = 0; i < moments.size(); ++i) {
    BindMoment(b, update, states[i], next[1 + i]);
  }
  return next;
}

OptimizerValues AppendOptimizer(
    Graph& graph, const std::vector<ParameterGradient>& parameters,
    const OptimizerSpec& spec, const std::vector<Value*>& must_be_finite,
    Value* loss_scale, const SumOfParts& sum_of_parts, const StateNames& names,
    Value* condition, uint64_t seed) {
  CheckOptimizer(spec);
  CheckParameters(parameters, graph.file);
  Builder b(graph, "optimizer.");
  b.set_part(Part::kOptimizer);
  OptimizerValues values;
  values.lr = graph.AddInitializer(graph.FreshName("lr"),
                                   Tensor::Scalar(static_cast<float>(spec.lr)));
  values.lr->is_input = true;
  graph.inputs.push_back(values.lr);
  Value* inverse = loss_scale ? b.Op("Reciprocal", {loss_scale}) : nullptr;
  values.grad_norm = GradNorm(b, parameters, inverse, sum_of_parts);
  values.finite = AllFinite(
      b, spec.release_gradients ? nullptr : values.grad_norm, must_be_finite);
  values.ok =
      condition ? b.Op("And", {values.finite, condition}) : values.finite;
  Named(graph, values.ok, "optimizer.ok");
  Value* scale = ClipFactor(b, spec, names, values);
  if (inverse) scale = b.Mul(scale, inverse);

  Tensor zero = Tensor::Zeros(DType::kInt64, {});
  values.step = AddState(graph, names, "optimizer.step", Role::kCounter, zero);
  values.skipped =
      AddState(graph, names, "optimizer.skipped", Role::kCounter, zero.Clone());
  Value* step = b.Add(values.step, b.Cast(values.ok, DType::kInt64));
  Value* bad = b.Cast(b.Op("Not", {values.ok}), DType::kInt64);
  Value* skipped = b.Add(values.skipped, bad);

  Value* seed_state = nullptr;
  if (Draws(spec, parameters)) {
    constexpr uint64_t kPositive = ~uint64_t{0} >> 1;
    seed_state =
        AddState(graph, names, "optimizer.seed", Role::kCounter,
                 Tensor::Scalar(static_cast<int64_t>(seed & kPositive)));
  }
  const std::unique_ptr<Graph> rule =
      IsOptimizerFile(spec.kind) ? ReadOptimizerFile(spec.kind) : nullptr;
  std::vector<Value*> amaxes;
  for (const ParameterGradient& p : parameters) {
    const Shape& whole = p.whole.empty() ? *p.param->shape : p.whole;
    const ParameterGroup* group = GroupOf(spec, p.fqn, p.param->name);
    Update update{
        .param = p.param,
        .grad = p.grad,
        .name = "optimizer." + p.fqn,
        .weight_decay = DecayOf(spec, p.fqn, p.param->name, whole, p.use),
        .lr_scale = group ? group->lr_scale.value_or(1) : 1,
        .step = step,
        .lr = values.lr,
        .grad_scale = scale,
        .ok = values.ok,
        .names = names,
        .moments = MomentDType(spec, p),
        .places = p.places,
        .seed = seed_state,
        .number = step,
        .measured = spec.moments != "float32",
        .of = p,
        .rule = rule.get()};
    Value* amax = RowOf(spec, p).append(b, update, spec);
    if (amax) amaxes.push_back(amax);
  }
  values.update_amax = LargestUpdate(b, amaxes, values.ok);
  AppendAverages(b, parameters, spec, names, step, values.ok);
  Bind(graph, values.step, step);
  Bind(graph, values.skipped, skipped);
  // Checkpoints hold the state that a step computes. An Identity is a view.
  if (seed_state) Bind(graph, seed_state, b.Add(seed_state, b.Int(0)));
  return values;
}

}  // namespace onnx_fp8
