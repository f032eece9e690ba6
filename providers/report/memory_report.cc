// SPDX-License-Identifier: Apache-2.0
#include "providers/report/memory_report.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "graph/node_notes.h"
#include "graph/print.h"
#include "providers/plan/arena.h"

namespace onnx_fp8 {
namespace {

class Kinds {
 public:
  Kinds(const Plan& plan, const Graph& graph, const GradientNames& gradients) {
    std::unordered_set<const Node*> runs;
    for (const Step& step : plan.steps) runs.insert(step.node);
    for (const auto& value : plan.workspaces) workspaces_.insert(value.get());
    const Value* seed = graph.Find(gradients.seed);
    if (seed) backward_.insert(seed);
    for (const Node& node : graph.nodes()) {
      bool view = !runs.contains(&node) && node.in(0) && node.out(0);
      if (view) root_[node.out(0)] = Root(node.in(0));
      bool depends = std::ranges::any_of(node.inputs(), [&](const Value* in) {
        return backward_.contains(in);
      });
      const bool again = node.part == Part::kRecomputed;
      if (!depends && !again) continue;
      if (depends) {
        backward_.insert(node.outputs().begin(), node.outputs().end());
      }
      for (const Value* in : node.inputs()) {
        if (in && !view) saved_.insert(Root(in));
      }
    }
    backward_.erase(nullptr);
    for (const std::string& name : gradients.parameters) {
      if (const Value* value = graph.Find(name)) {
        parameter_gradients_.insert(Root(value));
      }
    }
  }

  // The value in whose memory `value` lies.
  const Value* Root(const Value* value) const {
    auto it = root_.find(value);
    return it == root_.end() ? value : it->second;
  }

  // REQUIRES: no view.
  MemoryKind Of(const Value& value) const {
    if (workspaces_.contains(&value)) return MemoryKind::kWorkspace;
    if (parameter_gradients_.contains(&value)) {
      return MemoryKind::kParameterGradient;
    }
    if (IsFloat8(value.dtype) && value.role != Role::kMoment) {
      return MemoryKind::kFp8Copy;
    }
    switch (value.role) {
      case Role::kParameter:
      case Role::kFrozen:
      case Role::kCorrection:
        return MemoryKind::kParameter;
      case Role::kScale:
      case Role::kWeightCopy:
        return MemoryKind::kFp8State;
      case Role::kNone:
        break;
      default:
        return MemoryKind::kOptimizerState;
    }
    if (value.is_input) return MemoryKind::kInput;
    if (value.is_initializer()) return MemoryKind::kConstant;
    if (backward_.contains(&value)) return MemoryKind::kActivationGradient;
    if (value.producer->part == Part::kRecomputed) {
      return MemoryKind::kTemporary;
    }
    return saved_.contains(&value) ? MemoryKind::kSavedActivation
                                   : MemoryKind::kTemporary;
  }

 private:
  std::unordered_map<const Value*, const Value*> root_;  // of views only
  std::unordered_set<const Value*> backward_;            // depends on the seed
  std::unordered_set<const Value*> saved_;  // read to compute such a value
  std::unordered_set<const Value*> parameter_gradients_, workspaces_;
};

// The step at which the tenants are largest, and the tenants at that step.
struct Peak {
  explicit Peak(const Plan& plan) {
    const std::vector<Tenant>& tenants = plan.tenants;
    // A tenant that passes its place to another at a step no longer counts
    // there.
    std::map<std::pair<size_t, int>, size_t> starts;
    for (size_t i = 0; i < tenants.size(); ++i) {
      starts[{tenants[i].at, tenants[i].first}] = i;
    }
    std::vector<int> ends;
    std::map<int, std::pair<size_t, size_t>> changes;  // step → (more, less)
    for (size_t i = 0; i < tenants.size(); ++i) {
      const Tenant& t = tenants[i];
      auto next = starts.find({t.at, t.last});
      bool handed_on = next != starts.end() && next->second != i;
      ends.push_back(t.last - handed_on);
      changes[t.first].first += Padded(t.bytes, plan.alignment);
      changes[ends.back() + 1].second += Padded(t.bytes, plan.alignment);
    }
    size_t bytes = 0;
    for (const auto& [at, change] : changes) {
      bytes = bytes + change.first - change.second;
      if (bytes <= live_bytes) continue;
      live_bytes = bytes;
      step = at;
    }
    for (size_t i = 0; i < tenants.size(); ++i) {
      if (tenants[i].first <= step && step <= ends[i]) there.push_back(i);
    }
  }

  int step = 0;
  size_t live_bytes = 0;
  std::vector<size_t> there;
};

class Reporter {
 public:
  Reporter(const Plan& plan, const Graph& graph, const GradientNames& gradients)
      : plan_(plan),
        kinds_(plan, graph, gradients),
        released_(gradients.released) {
    for (const Step& step : plan.steps) {
      for (const Value* value : step.node->inputs()) {
        if (value) last_reader_[kinds_.Root(value)] = step.node;
      }
    }
  }

  MemoryReport Run() {
    Peak peak(plan_);
    auto steps = static_cast<int>(plan_.steps.size());
    report_.steps = steps;
    report_.arena_bytes = plan_.arena_bytes;
    report_.live_bytes = peak.live_bytes;
    if (peak.step >= 0 && peak.step < steps) {
      report_.step = peak.step + 1;
      report_.node = plan_.steps[static_cast<size_t>(peak.step)].node->Where();
    }
    for (size_t i : peak.there) {
      const Value& value = *plan_.tenants[i].value;
      Add(value, kinds_.Of(value));
      report_.in_arena_bytes += plan_.tenants[i].bytes;
    }
    for (const auto* values : {&plan_.states, &plan_.constants, &plan_.feeds}) {
      for (const Value* value : *values) Add(*value, kinds_.Of(*value));
    }
    for (const Value* value : plan_.fetched) Add(*value, MemoryKind::kOutput);
    std::ranges::stable_sort(report_.live, std::greater<>(), &LiveValue::bytes);
    FindHeldGradients();
    return std::move(report_);
  }

 private:
  void Add(const Value& value, MemoryKind kind) {
    LiveValue live{.kind = kind,
                   .name = value.name,
                   .type = TypeText(value),
                   .bytes = BytesOf(value)};
    if (live.bytes == 0) return;
    if (const Node* node = value.producer) {
      live.node = node->Where();
      live.op = OpName(*node);
      live.role = NodeNote(*node, "role");
      if (live.role.empty()) live.role = NodeNote(*node, "operand");
      live.fqn = NodeNote(*node, "fqn");
    }
    auto reader = last_reader_.find(&value);
    if (reader != last_reader_.end())
      live.last_reader = reader->second->Where();
    report_.live.push_back(std::move(live));
  }

  void FindHeldGradients() {
    auto write = static_cast<int>(plan_.first_write);
    if (released_ || write == report_.steps) return;
    for (const Tenant& tenant : plan_.tenants) {
      bool held = tenant.first < write && write <= tenant.last &&
                  kinds_.Of(*tenant.value) == MemoryKind::kParameterGradient;
      if (held) report_.gradients_held_bytes += tenant.bytes;
    }
  }

  const Plan& plan_;
  Kinds kinds_;
  const bool released_;
  std::unordered_map<const Value*, const Node*> last_reader_;
  MemoryReport report_;
};

}  // namespace

const char* Name(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::kParameterGradient:
      return "gradients of parameters";
    case MemoryKind::kFp8Copy:
      return "FP8 copies";
    case MemoryKind::kParameter:
      return "parameters";
    case MemoryKind::kFp8State:
      return "FP8 state";
    case MemoryKind::kOptimizerState:
      return "optimizer state";
    case MemoryKind::kInput:
      return "inputs";
    case MemoryKind::kConstant:
      return "constants";
    case MemoryKind::kOutput:
      return "outputs";
    case MemoryKind::kActivationGradient:
      return "gradients of activations";
    case MemoryKind::kSavedActivation:
      return "saved activations";
    case MemoryKind::kTemporary:
      return "temporaries";
    case MemoryKind::kWorkspace:
      return "workspaces";
  }
  return "";
}

std::vector<MemoryKind> TenantKinds(const Plan& plan, const Graph& graph,
                                    const GradientNames& gradients) {
  Kinds kinds(plan, graph, gradients);
  std::vector<MemoryKind> list;
  for (const Tenant& tenant : plan.tenants) {
    list.push_back(kinds.Of(*tenant.value));
  }
  return list;
}

MemoryReport MakeMemoryReport(const Plan& plan, const Graph& graph,
                              const GradientNames& gradients) {
  return Reporter(plan, graph, gradients).Run();
}

}  // namespace onnx_fp8
