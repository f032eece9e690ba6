// SPDX-License-Identifier: Apache-2.0
#include "optimizers/own_optimizer.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <unordered_map>

#include "base/check.h"
#include "base/joined.h"
#include "graph/onnx/onnx_io.h"
#include "graph/onnx/written_file.h"
#include "optimizers/ema.h"
#include "optimizers/master_format.h"
#include "optimizers/update.h"

namespace onnx_fp8 {
namespace {

constexpr const char* kGiven[] = {"param", "grad", "lr", "step"};

bool IsStateInput(const Value& input) {
  return std::ranges::count(kGiven, input.name) == 0;
}

std::string TypeOf(const Value& value) {
  return Concat(Name(value.dtype),
                value.shape ? ToString(*value.shape) : " of unknown rank");
}

// The first value of a state.
Tensor FirstValue(const Graph& rule, const Value& state, const Value& param) {
  const bool one = state.shape && state.shape->empty();
  const Shape shape = one ? Shape{} : *param.shape;
  const bool given = state.is_initializer();
  const DType dtype = given                  ? state.data.dtype()
                      : IsFloat(state.dtype) ? param.dtype
                                             : state.dtype;
  if (!given) return Tensor::Zeros(dtype, shape);
  if (state.data.shape() == shape) return state.data.Clone();
  Check(state.data.size() == 1, "[", rule.file,
        "] expected the first value of the state ", state.name,
        " as one number or of the parameter's shape ", ToString(shape),
        ", got ", ToString(state.data.shape()));
  Tensor filled = Tensor::Allocate(dtype, shape);
  const size_t bytes = state.data.bytes();
  auto* to = static_cast<std::byte*>(filled.raw());
  for (size_t at = 0; at < filled.bytes(); at += bytes) {
    std::copy_n(static_cast<const std::byte*>(state.data.raw()), bytes,
                to + at);
  }
  return filled;
}

// Adds the nodes of a rule for one parameter.
class RuleCopy {
 public:
  RuleCopy(Builder& b, const Update& update)
      : b_(b), update_(update), rule_(*update.rule) {}

  void Run() {
    Value* norm =
        b_.Op("ReduceSumSquare", {update_.grad}, {{"keepdims", int64_t{0}}});
    norm->producer->metadata[kGradientOf] = update_.param->name;
    constexpr double kMost = std::numeric_limits<double>::infinity();
    Value* taken = b_.Op(
        "And", {update_.ok, b_.Op("Less", {norm, b_.Scalar(kMost, norm)})});
    std::vector<Value*> kept = {update_.param};
    for (Value* input : rule_.inputs) {
      values_[input] = IsStateInput(*input) ? AddState(*input) : Given(*input);
      if (IsStateInput(*input)) kept.push_back(values_[input]);
    }
    for (Value* value : rule_.Initializers()) {
      if (!values_.contains(value)) values_[value] = b_.Constant(value->data);
    }
    for (const Node& node : rule_.nodes()) Copy(node);
    for (size_t i = 0; i < kept.size(); ++i) {
      Value* next = values_.at(rule_.outputs[i]);
      CheckResult(*rule_.outputs[i], *next, *kept[i]);
      Bind(b_.graph(), kept[i], b_.Op("Where", {taken, next, kept[i]}));
    }
  }

 private:
  std::string What() const {
    return Concat("[", rule_.file, "] for the parameter ", update_.param->name,
                  ", ", TypeOf(*update_.param), ": ");
  }

  Value* Given(const Value& input) {
    const DType floats = update_.param->dtype;
    if (input.name == "param") return update_.param;
    if (input.name == "grad") {
      Value* grad = b_.Cast(update_.grad, floats);
      return b_.Mul(grad, b_.Cast(update_.grad_scale, floats));
    }
    const DType wanted = IsFloat(input.dtype) ? floats : input.dtype;
    if (input.name == "step") return b_.Cast(update_.step, wanted);
    Value* lr = update_.lr;
    if (update_.lr_scale != 1) {
      lr = b_.Mul(lr, b_.Scalar(update_.lr_scale, lr));
    }
    return b_.Cast(lr, wanted);
  }

  Value* AddState(const Value& input) {
    const std::string hint = Concat(update_.param->name, ".", input.name);
    Value* state = b_.graph().AddInitializer(
        update_.names ? update_.names(hint) : b_.graph().FreshName(hint),
        FirstValue(rule_, input, *update_.param));
    state->role = Role::kMoment;
    return state;
  }

  void Copy(const Node& node) {
    std::vector<Value*> inputs;
    for (const Value* in : node.inputs()) {
      inputs.push_back(in ? values_.at(in) : nullptr);
    }
    std::vector<Value*> made;
    try {
      made = b_.Ops(node.op, inputs, node.outputs().size(), node.attributes,
                    node.domain);
    } catch (const Error& error) {
      Fail(What(), "the node ", node.Where(), " does not fit: ", error.what());
    }
    made[0]->producer->name = Concat(update_.name, "/", node.name);
    for (size_t i = 0; i < made.size(); ++i) {
      if (node.out(i)) values_[node.out(i)] = made[i];
    }
  }

  void CheckResult(const Value& output, const Value& next,
                   const Value& kept) const {
    const bool fits =
        next.dtype == kept.dtype && next.shape && *next.shape == *kept.shape;
    Check(fits, What(), "expected the output ", output.name, " as ",
          TypeOf(kept), ", like ", kept.name, ", got ", TypeOf(next));
  }

  Builder& b_;
  const Update& update_;
  const Graph& rule_;
  std::unordered_map<const Value*, Value*> values_;
};

Value* AppendOwnRule(Builder& b, const Update& update, const OptimizerSpec&) {
  RuleCopy(b, update).Run();
  return nullptr;
}

std::vector<std::string> StatesInFile(const OptimizerSpec& spec) {
  return StatesOf(*ReadOptimizerFile(spec.kind));
}

}  // namespace

bool IsOptimizerFile(std::string_view kind) { return kind.ends_with(".onnx"); }

std::unique_ptr<Graph> ReadOptimizerFile(const std::string& path) {
  std::unique_ptr<Graph> rule = ReadModel(path);
  Check(WrittenAs(*rule) == Written::kNo, "[", path,
        "] expected a model of one parameter's update, got a file that "
        "`rewrite()` or another program wrote for training");
  // The default of a state is its first value.
  rule->inputs.clear();
  for (const std::string& name : rule->listed_inputs) {
    rule->inputs.push_back(rule->Find(name));
    rule->inputs.back()->is_input = true;
  }
  const std::vector<std::string>& names = rule->listed_inputs;
  std::vector<std::string> results;
  for (const Value* output : rule->outputs) results.push_back(output->name);
  for (const char* needed : {"param", "grad"}) {
    Check(std::ranges::count(names, needed) == 1, "[", path,
          "] expected an input ", needed, ", got ", Joined(names));
  }
  const std::vector<std::string> states = StatesOf(*rule);
  for (const std::string& state : states) {
    const std::string end = "." + state;
    Check(state.find('.') == std::string::npos && end != kEma &&
              end != kCorrection,
          "[", path, "] expected states with a name without a dot, and not ",
          kEma + 1, " or ", kCorrection + 1, ", which a run may keep, got ",
          state);
  }
  Check(results.size() == 1 + states.size(), "[", path, "] expected ",
        1 + states.size(), " outputs, the new parameter",
        states.empty() ? "" : " and the new values of " + Joined(states),
        ", got ", results.size(),
        results.empty() ? "" : ": " + Joined(results));
  for (const Node& node : rule->nodes()) {
    Check(node.Subgraphs().empty() && !node.outputs().empty(), "[", path,
          "] expected an update without If, Loop and Scan, got ", node.Where());
  }
  for (Value* input : rule->inputs) {
    Check(
        input->name == "step" || IsStateInput(*input) || IsFloat(input->dtype),
        "[", path, "] expected the input ", input->name, " as floats, got ",
        TypeOf(*input));
  }
  return rule;
}

bool ReadsRate(const Graph& rule) {
  return std::ranges::any_of(rule.inputs, [](const Value* input) {
    return input->name == "lr" && !input->uses.empty();
  });
}

std::vector<std::string> StatesOf(const Graph& rule) {
  std::vector<std::string> names;
  for (const Value* input : rule.inputs) {
    if (IsStateInput(*input)) names.push_back(input->name);
  }
  return names;
}

const OptimizerRow& RowOfOptimizerFiles() {
  static const OptimizerRow row = {".onnx", 0, StatesInFile, AppendOwnRule};
  return row;
}

}  // namespace onnx_fp8
