// SPDX-License-Identifier: Apache-2.0
#include "training/step/hidden_matrices.h"

#include <unordered_set>
#include <vector>

#include "base/check.h"
#include "base/glob.h"
#include "base/joined.h"
#include "graph/op_facts.h"
#include "graph/weight_uses.h"
#include "onnx_fp8/option_error.h"
#include "optimizers/optimizer.h"
#include "optimizers/own_optimizer.h"
#include "training/step/loss.h"

namespace onnx_fp8 {
namespace {

// Whether the first result holds elements of operand 0, perhaps in another
// format.
bool PassesElements(const Node& node) {
  switch (FactsOf(node).form) {
    case OpForm::kCopy:
    case OpForm::kConvert:
    case OpForm::kReshape:
    case OpForm::kTranspose:
    case OpForm::kSlice:
    case OpForm::kSplit:
      return true;
    default:
      return node.Is("QuantizeLinear") || node.Is("DequantizeLinear");
  }
}

// The initializer whose elements the value holds; null: there is none.
const Value* SourceOf(const Value* value) {
  while (value && value->producer && !value->producer->inputs().empty() &&
         PassesElements(*value->producer)) {
    value = value->producer->in(0);
  }
  return value && value->is_initializer() ? value : nullptr;
}

bool IsLayer(const Value& weight) {
  return weight.role == Role::kParameter || weight.role == Role::kFrozen;
}

// The value from which layers are counted backwards; null: there is none.
const Value* ScoresOf(const LossSpec& loss, const Graph& model) {
  const std::string name = OwnOutput(loss.kind).value_or(loss.logits);
  if (const Value* named = model.Find(name)) return named;
  return model.outputs.empty() ? nullptr : model.outputs[0];
}

// The weights of products behind which no other layer comes.
std::unordered_set<const Value*> LastLayers(const Value* scores) {
  std::unordered_set<const Value*> layers, seen;
  std::vector<const Value*> open;
  auto reach = [&](const Value* value) {
    if (value && seen.insert(value).second) open.push_back(value);
  };
  reach(scores);
  while (!open.empty()) {
    const Node* node = open.back()->producer;
    open.pop_back();
    if (!node) continue;
    bool is_layer = false;
    if (FactsOf(*node).kind == OpKind::kProduct) {
      for (const Value* operand : node->inputs()) {
        const Value* weight = SourceOf(operand);
        if (!weight || !IsLayer(*weight) || weight->rank() < 2) continue;
        layers.insert(weight);
        is_layer = true;
      }
    }
    if (is_layer) continue;
    for (const Value* operand : node->inputs()) reach(operand);
  }
  return layers;
}

const std::string& FqnOf(const std::string& name, const ParameterNames& names) {
  auto known = names.find(name);
  return known == names.end() ? name : known->second.fqn;
}

bool IsMatrix(const Value& weight) {
  return weight.rank() == 2 && NumElements(*weight.shape) > 0;
}

// Decides for the weights that the patterns name.
void TakeNamed(const std::vector<std::string>& patterns, const Graph& model,
               const ParameterNames& names,
               std::map<std::string, TakenAs>* taken) {
  for (const std::string& pattern : patterns) {
    bool found = false;
    for (auto& [name, as] : *taken) {
      const bool fits = MatchesGlob(pattern, name) ||
                        MatchesGlob(pattern, FqnOf(name, names));
      if (!fits) continue;
      found = true;
      if (!IsMatrix(*model.Find(name))) {
        throw OptionError(Concat("`muon_for`: expected matrices, got ",
                                 FqnOf(name, names), " of shape ",
                                 ToString(*model.Find(name)->shape),
                                 ", which \"", pattern, "\" names"));
      }
      as = TakenAs::kMatrix;
    }
    if (found) continue;
    throw OptionError(
        Concat("`muon_for`: expected trained parameters that "
               "match \"",
               pattern, "\", got none; `inspect()` lists them"));
  }
}

}  // namespace

std::map<std::string, TakenAs> TakenByOptimizer(const OptimizerSpec& spec,
                                                const LossSpec& loss,
                                                const Graph& model,
                                                const ParameterNames& names) {
  std::map<std::string, TakenAs> taken;
  if (RestOf(spec).empty()) return taken;
  const auto last = LastLayers(ScoresOf(loss, model));
  const std::map<std::string, WeightUse> uses = WeightUses(model);
  for (const Value* weight : model.Initializers()) {
    if (weight->role != Role::kParameter) continue;
    TakenAs& as = taken[weight->name];
    const WeightUse use = uses.at(weight->name);
    as = !IsMatrix(*weight)         ? TakenAs::kNoMatrix
         : !spec.muon.only.empty()  ? TakenAs::kNotNamed
         : use == WeightUse::kTable ? TakenAs::kTable
         : last.contains(weight)    ? TakenAs::kLastLayer
         : use != WeightUse::kLayer ? TakenAs::kNoProduct
                                    : TakenAs::kMatrix;
  }
  TakeNamed(spec.muon.only, model, names, &taken);
  return taken;
}

std::string_view Reason(TakenAs taken) {
  switch (taken) {
    case TakenAs::kMatrix:
      return "a matrix of a hidden layer";
    case TakenAs::kNoMatrix:
      return "no matrix";
    case TakenAs::kTable:
      return "a table";
    case TakenAs::kLastLayer:
      return "the last layer";
    case TakenAs::kNoProduct:
      return "in no product";
    case TakenAs::kNotNamed:
      return "not in `muon_for`";
  }
  return "";
}

std::string TakenNote(const OptimizerSpec& spec,
                      const std::map<std::string, TakenAs>& taken,
                      const ParameterNames& names) {
  if (IsOptimizerFile(spec.kind)) {
    const auto rule = ReadOptimizerFile(spec.kind);
    const std::vector<std::string> states = StatesOf(*rule);
    return Concat("`optimizer=", spec.kind, "`: ", states.size(),
                  " states of each trained tensor",
                  states.empty() ? "" : ": " + Joined(states),
                  ReadsRate(*rule) ? "" : "; it reads no learning rate");
  }
  if (taken.empty()) return "";
  std::map<TakenAs, std::vector<std::string>> lists;
  for (const auto& [name, as] : taken) lists[as].push_back(FqnOf(name, names));
  const std::vector<std::string>& own = lists[TakenAs::kMatrix];
  std::string text =
      Concat("`optimizer=", spec.kind, "`: ", own.size(), " of ", taken.size(),
             " trained tensors take it", own.empty() ? "" : ": ", Joined(own));
  const char* separator = "; the others take ";
  for (const auto& [as, list] : lists) {
    if (as == TakenAs::kMatrix || list.empty()) continue;
    text += separator;
    if (separator[0] == ';') text += RestOf(spec) + ": ";
    text += Concat(Joined(list), " (", Reason(as), ")");
    separator = ", ";
  }
  return text;
}

}  // namespace onnx_fp8
