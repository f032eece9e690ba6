// SPDX-License-Identifier: Apache-2.0
#include "providers/run/not_finite_watch.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "graph/node_notes.h"
#include "graph/op_facts.h"
#include "graph/print.h"
#include "graph/views.h"
#include "providers/node_profile.h"
#include "providers/run/sample_rows.h"

namespace onnx_fp8 {
namespace {

constexpr size_t kLargest = 5;

std::vector<int64_t> IndexOf(int64_t place, const Shape& shape) {
  std::vector<int64_t> index(shape.size());
  for (size_t axis = shape.size(); axis-- > 0;) {
    index[axis] = place % shape[axis];
    place /= shape[axis];
  }
  return index;
}

bool ChangesInTraining(Role role) {
  return role != Role::kNone && role != Role::kFrozen;
}

}  // namespace

std::string LayerOf(const Node& node) {
  if (std::string fqn = NodeNote(node, "fqn"); !fqn.empty()) return fqn;
  const auto weight = [&]() -> std::string {
    for (Value* in : node.inputs()) {
      const Value* found = in ? WeightBehind(in) : nullptr;
      if (found) return found->name;
    }
    return "";
  };
  if (FactsOf(node).kind == OpKind::kProduct) {
    if (std::string name = weight(); !name.empty()) return name;
  }
  const std::string module = ModulePath(node);
  const std::string layer = module.empty() ? weight() : module;
  // A rounding belongs to what it rounds.
  const Node* before = node.in(0) ? node.in(0)->producer : nullptr;
  const bool rounds = FactsOf(node).kind == OpKind::kRound;
  return layer.empty() && rounds && before ? LayerOf(*before) : layer;
}

void NotFiniteWatch::Begin(const Graph& graph, ExecutionProvider& provider) {
  const bool reads_batch = std::ranges::any_of(
      graph.inputs,
      [&](const Value* input) { return by_sample_.contains(input->name); });
  if (reads_batch) ++batch_;
  const auto at = static_cast<size_t>(batch_);
  samples_ = reads_batch && at < sizes_.size() ? sizes_[at] : 0;
  provider_ = &provider;
  seen_.clear();
  origins_.clear();
  if (of_state_) new_state_ = NewState(graph);
}

bool NotFiniteWatch::Watches(const Node& node) const {
  if (found_) return false;
  return !of_state_ || std::ranges::any_of(node.outputs(), [&](const Value* v) {
    return new_state_.contains(v);
  });
}

void NotFiniteWatch::Before(const Node& node, std::span<const Tensor> inputs) {
  if (!Watches(node)) return;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (node.in(i) && inputs[i].defined()) Look(*node.in(i), inputs[i], node);
  }
}

void NotFiniteWatch::After(const Node& node, std::span<const Tensor> outputs) {
  if (!Watches(node)) return;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Value* value = node.out(i);
    if (!value || !outputs[i].defined()) continue;
    Seen seen;
    seen.sample_rows = samples_ > 0 && KeepsSampleRows(node, *value, samples_,
                                                       [this](const Value* v) {
                                                         return HasRows(v);
                                                       });
    if (MayBeNotFinite(outputs[i].dtype())) {
      const Tensor tensor = provider_->ToHost(outputs[i]);
      seen.range = RangeOf(tensor);
      if (!seen.finite()) Trace(node, *value, tensor, &seen);
      // The codes of FP8 always reach their format's end.
      if (!IsFloat8(tensor.dtype())) KeepLargest(node, *seen.range);
    }
    seen_[value] = seen;
  }
}

void NotFiniteWatch::End(const Graph& graph) {
  if (found_) return;
  int strong = -1, weak = -1;
  for (const Value* value : ReturnedValues(graph)) {
    const auto it = seen_.find(value);
    // Statistics are doubles; they count for no update.
    if (it == seen_.end() || value->dtype == DType::kDouble) continue;
    const Seen& seen = it->second;
    if (seen.finite() || seen.origin < 0) continue;
    int& first = seen.weak ? weak : strong;
    if (first < 0 || seen.origin < first) first = seen.origin;
  }
  const int first = strong >= 0 ? strong : weak;
  if (first >= 0) {
    found_ = origins_[static_cast<size_t>(first)];
  } else if (!unused_ && !origins_.empty()) {
    unused_ = origins_[0];
  }
}

const NotFiniteWatch::Seen& NotFiniteWatch::Look(const Value& value,
                                                 const Tensor& tensor,
                                                 const Node& by) {
  if (const auto it = seen_.find(&value); it != seen_.end()) return it->second;
  const Seen seen = LookAtSource(value, tensor, by);
  return seen_[&value] = seen;
}

// A value that no watched node has made.
NotFiniteWatch::Seen NotFiniteWatch::LookAtSource(const Value& value,
                                                  const Tensor& tensor,
                                                  const Node& by) {
  Seen seen;
  if (const Node* view = of_state_ ? nullptr : value.producer) {
    const KernelEntry* entry =
        provider_->Kernels().Find(view->domain, view->op);
    // The results of a branch that is not taken are garbage.
    if (!entry || !entry->traits.view || !view->in(0)) return seen;
    seen = Look(*view->in(0), tensor, by);
    seen.sample_rows = samples_ > 0 && KeepsSampleRows(*view, value, samples_,
                                                       [this](const Value* v) {
                                                         return HasRows(v);
                                                       });
    return seen;
  }
  seen.sample_rows = value.is_input && samples_ > 0 && value.concrete() &&
                     value.rank() > 0 && value.dim(0) == samples_ &&
                     by_sample_.contains(value.name);
  if (!MayBeNotFinite(tensor.dtype())) return seen;
  const Tensor numbers = provider_->ToHost(tensor);
  seen.range = RangeOf(numbers);
  if (seen.finite()) return seen;
  const bool state = ChangesInTraining(value.role);
  const bool constant = value.is_constant() || value.role == Role::kFrozen ||
                        value.producer != nullptr;
  seen.weak = constant || (seen.range->nans == 0 && !state);
  if (constant) return seen;
  seen.origin = AddOrigin(
      state ? NotFiniteOrigin::Source::kState : NotFiniteOrigin::Source::kInput,
      by, value, numbers, seen);
  return seen;
}

void NotFiniteWatch::Trace(const Node& node, const Value& value,
                           const Tensor& tensor, Seen* seen) {
  // NaN in a result comes from an operand with NaN, if there is one: operands
  // with Inf are then left out.
  bool any_nan = false, finite = true;
  for (const Value* in : node.inputs()) {
    const auto it = in ? seen_.find(in) : seen_.end();
    if (it == seen_.end() || it->second.finite()) continue;
    finite = false;
    any_nan |= it->second.range->nans > 0;
  }
  int strong = -1, weak = -1;
  for (const Value* in : node.inputs()) {
    const auto it = in ? seen_.find(in) : seen_.end();
    if (it == seen_.end() || it->second.finite()) continue;
    const Seen& operand = it->second;
    if (operand.origin < 0 || (any_nan && operand.range->nans == 0)) continue;
    int& first = operand.weak ? weak : strong;
    if (first < 0 || operand.origin < first) first = operand.origin;
  }
  const bool makes_nan = seen->range->nans > 0 && !any_nan;
  if (strong >= 0) {
    seen->origin = strong;
  } else if (weak >= 0) {
    seen->origin = weak;
    seen->weak = !makes_nan;
  } else if (finite || makes_nan) {
    seen->origin =
        AddOrigin(NotFiniteOrigin::Source::kNode, node, value, tensor, *seen);
  } else {
    seen->weak = true;
  }
}

int NotFiniteWatch::AddOrigin(NotFiniteOrigin::Source source, const Node& node,
                              const Value& value, const Tensor& tensor,
                              const Seen& seen) {
  NotFiniteOrigin origin;
  origin.source = source;
  origin.node = node.Where();
  origin.op = OpName(node);
  origin.role = RoleOf(node);
  origin.layer = LayerOf(node);
  origin.forward = NodeNote(node, kForwardName);
  if (source == NotFiniteOrigin::Source::kNode) {
    for (const Value* in : node.inputs()) {
      if (in) origin.operands.push_back(Describe(*in));
    }
  }
  origin.result = {value.name, TypeText(value), seen.range};
  origin.index = IndexOf(seen.range->first, *value.shape);
  origin.is_nan = std::isnan(DoubleAt(tensor, seen.range->first));
  origin.batch = std::max<int64_t>(batch_, 0);
  if (seen.sample_rows) {
    origin.sample = origin.index[0] / (value.dim(0) / samples_);
  }
  origins_.push_back(std::move(origin));
  return static_cast<int>(origins_.size()) - 1;
}

bool NotFiniteWatch::HasRows(const Value* value) const {
  const auto it = seen_.find(value);
  return it != seen_.end() && it->second.sample_rows;
}

SeenTensor NotFiniteWatch::Describe(const Value& value) const {
  const auto it = seen_.find(&value);
  return {value.name, TypeText(value),
          it == seen_.end() ? std::nullopt : it->second.range};
}

void NotFiniteWatch::KeepLargest(const Node& node, const TensorRange& range) {
  if (node.part == Part::kOptimizer) return;
  const auto place = std::ranges::find_if(
      largest_, [&](const auto& other) { return range.amax > other.amax; });
  if (place == largest_.end() && largest_.size() == kLargest) return;
  largest_.insert(place, {node.Where(), LayerOf(node), range.amax});
  if (largest_.size() > kLargest) largest_.pop_back();
}

}  // namespace onnx_fp8
