// SPDX-License-Identifier: Apache-2.0
//
// Works only from the meaning of the graph and shares nothing with the planner:
// it follows which value every piece of memory holds.
#include <algorithm>
#include <array>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "base/check.h"
#include "graph/op_facts.h"
#include "providers/plan/plan.h"
#include "providers/view.h"

namespace onnx_fp8 {
namespace {

class Simulator {
 public:
  Simulator(const Plan& plan, const Graph& graph, const KernelRegistry& kernels)
      : plan_(plan), graph_(graph), kernels_(kernels) {}

  void Run() {
    for (const Step& step : plan_.steps) runs_.insert(step.node);
    for (const Value* state : plan_.states) states_.push_back(state);
    fetched_.resize(plan_.fetched.size());
    for (const Copy& copy : plan_.before) RunCopy(copy, "before the steps");
    for (size_t i = 0; i < plan_.steps.size();) {
      size_t count = plan_.steps[i].together;
      Check(count >= 1 && count <= plan_.steps.size() - i,
            "expected steps that run together, got ", count);
      CheckFlights(i, count);
      RunSteps(i, count);
      if (plan_.steps[i].beside) {
        flights_[IndexOf(*plan_.steps[i].side)].push_back({i, count});
      }
      i += count;
    }
    for (const Copy& copy : plan_.after) RunCopy(copy, "after the steps");
    CheckEnd();
  }

 private:
  using Range = std::pair<size_t, size_t>;  // [begin, end) in the arena

  const Slot& At(int slot) const {
    return plan_.slots.at(static_cast<size_t>(slot));
  }

  Range RangeOf(const Slot& slot) const {
    return {slot.at, slot.at + BytesOf(*slot.value)};
  }

  // The value whose content `value` has: a view that does not run passes on its
  // first input.
  const Value* Content(const Value* value) const {
    while (value->producer && !runs_.contains(value->producer)) {
      const Node& node = *value->producer;
      const KernelEntry* entry = kernels_.Find(node.domain, node.op);
      Check(entry && CanBeView(node, entry->traits) && node.out(0) == value,
            "[", node.Where(), "] expected a step, got none");
      value = node.in(0);
    }
    return value;
  }

  // The value that the slot holds now; null: garbage, or parts of several
  // values.
  const Value* Held(const Slot& slot) const {
    switch (slot.place) {
      case SlotPlace::kFeed:
        return plan_.feeds.at(slot.at);
      case SlotPlace::kConstant:
      case SlotPlace::kHost:
        return plan_.constants.at(slot.at);
      case SlotPlace::kState:
        return states_.at(slot.at);
      case SlotPlace::kFetched:
        return fetched_.at(slot.at);
      case SlotPlace::kArena:
        break;
    }
    auto it = arena_.find(slot.at);
    if (it == arena_.end()) return nullptr;
    bool whole = slot.at + BytesOf(*slot.value) == it->second.first;
    return whole ? it->second.second : nullptr;
  }

  void Store(const Slot& slot, const Value* content, const std::string& where) {
    size_t bytes = BytesOf(*slot.value);
    if (slot.place == SlotPlace::kState) {
      Check(plan_.bound.at(slot.at), "[", where, "] writes the state \"",
            plan_.states[slot.at]->name, "\" that has no next value");
      Check(bytes == BytesOf(*plan_.states[slot.at]), "[", where,
            "] writes another size than that of \"",
            plan_.states[slot.at]->name, "\"");
      states_[slot.at] = content;
    } else if (slot.place == SlotPlace::kFetched) {
      Check(bytes == BytesOf(*plan_.fetched.at(slot.at)), "[", where,
            "] writes another size than that of an output");
      fetched_[slot.at] = content;
    } else {
      Check(slot.place == SlotPlace::kArena, "[", where, "] writes \"",
            slot.value->name, "\" into memory that is read only");
      auto [begin, end] = RangeOf(slot);
      Check(end <= plan_.arena_bytes && begin % plan_.alignment == 0, "[",
            where, "] expected \"", slot.value->name, "\" in the arena of ",
            plan_.arena_bytes, " bytes, got ", begin, " to ", end);
      if (begin == end) return;
      auto it = arena_.upper_bound(begin);
      if (it != arena_.begin() && std::prev(it)->second.first > begin) --it;
      while (it != arena_.end() && it->first < end) it = arena_.erase(it);
      arena_[begin] = {end, content};
    }
  }

  void CheckRead(const Slot& slot, const Value* value,
                 const std::string& where) const {
    if (BytesOf(*slot.value) == 0) return;
    const Value* held = Held(slot);
    Check(slot.value == value && held == Content(value), "[", where,
          "] expected to read \"", value->name, "\", got memory that holds ",
          held ? held->name : "nothing");
  }

  void RunCopy(const Copy& copy, const std::string& where) {
    const Slot& from = At(copy.from);
    CheckRead(from, from.value, where);
    Check(BytesOf(*from.value) == BytesOf(*At(copy.to).value), "[", where,
          "] copies between different sizes");
    Store(At(copy.to), Content(from.value), where);
  }

  bool Overlap(const Slot& a, const Slot& b) const {
    if (a.place != b.place || BytesOf(*a.value) == 0) return false;
    if (a.place != SlotPlace::kArena) return a.at == b.at;
    auto [a_begin, a_end] = RangeOf(a);
    auto [b_begin, b_end] = RangeOf(b);
    return a_begin < b_end && b_begin < a_end;
  }

  // Output o may lie in the memory of input i only if the kernel allows it.
  void CheckInPlace(const Step& step, size_t i, size_t o) const {
    const Slot& in = At(step.inputs[i]);
    const Slot& out = At(step.outputs[o]);
    if (!Overlap(in, out)) return;
    const KernelEntry* entry = kernels_.Find(step.node->domain, step.node->op);
    std::pair pair(static_cast<int>(i), static_cast<int>(o));
    bool allowed = entry && std::ranges::find(entry->traits.in_place, pair) !=
                                entry->traits.in_place.end();
    Check(allowed && in.at == out.at &&
              BytesOf(*in.value) == BytesOf(*out.value) &&
              ByteSize(StoredAs(*in.value)) == ByteSize(StoredAs(*out.value)),
          "[", step.node->Where(), "] output ", o, " lies over input ", i,
          ", which the kernel does not allow");
  }

  // Every operand must hold its value before the steps, which run together;
  // then the results take their places and destroy whatever lay there.
  void RunSteps(size_t first, size_t count) {
    for (size_t i = first; i < first + count; ++i) CheckOperands(i);
    for (size_t i = first; i < first + count; ++i) {
      for (size_t k = first; k < first + count; ++k) {
        if (i != k) CheckApart(plan_.steps[i], plan_.steps[k]);
      }
      StoreResults(i, first);
    }
  }

  // Calls of other queues that are not awaited yet may read their operands and
  // write their results at any time. Calls of one queue do so in their order.
  void CheckFlights(size_t first, size_t count) {
    const Step& step = plan_.steps[first];
    Check(step.side || !step.beside, "[", step.node->Where(),
          "] runs beside other steps, and has no queue for that");
    Check(IsCollective(*step.node) == (step.side == Side::kCollectives), "[",
          step.node->Where(), "] expected the queue of collectives for these");
    for (size_t k = first + 1; k < first + count; ++k) {
      Check(plan_.steps[k].side == step.side, "[", plan_.steps[k].node->Where(),
            "] runs together with a step of another queue");
    }
    for (size_t queue = 0; queue < kSides; ++queue) {
      const std::vector<std::pair<size_t, size_t>>& flights = flights_[queue];
      size_t& landed = landed_[queue];
      landed = std::max(landed, step.awaits[queue]);
      Check(landed <= flights.size(), "[", step.node->Where(),
            "] awaits a call that has not begun");
      if (step.side == static_cast<Side>(queue)) {
        Check(step.beside || landed == flights.size(), "[", step.node->Where(),
              "] runs while another call of its queue does");
        continue;
      }
      for (size_t f = landed; f < flights.size(); ++f) {
        for (size_t k = 0; k < flights[f].second; ++k) {
          for (size_t i = first; i < first + count; ++i) {
            CheckBeside(plan_.steps[i], plan_.steps[flights[f].first + k]);
          }
        }
      }
    }
  }

  void CheckBeside(const Step& step, const Step& beside) const {
    const auto overlap = [&](int a, int b) {
      return a >= 0 && b >= 0 && Overlap(At(a), At(b));
    };
    for (int result : Written(beside)) {
      bool touches = false;
      for (int slot : step.inputs) touches |= overlap(slot, result);
      for (int slot : Written(step)) touches |= overlap(slot, result);
      for (const Guard& guard : step.guards) {
        touches |= overlap(guard.slot, result);
      }
      Check(!touches, "[", step.node->Where(), "] touches the result of [",
            beside.node->Where(), "], which is not awaited");
    }
    for (int operand : beside.inputs) {
      for (int slot : Written(step)) {
        Check(!overlap(slot, operand), "[", step.node->Where(),
              "] overwrites an operand of [", beside.node->Where(),
              "], which is not awaited");
      }
    }
  }

  // Slots of results and of the workspace.
  static std::vector<int> Written(const Step& step) {
    std::vector<int> slots = step.outputs;
    if (step.workspace >= 0) slots.push_back(step.workspace);
    return slots;
  }

  // Nothing that `a` writes lies over an operand or a result of `b`.
  void CheckApart(const Step& a, const Step& b) const {
    Check(a.many && a.many == b.many, "[", a.node->Where(),
          "] runs together with another kind of node");
    for (int out : Written(a)) {
      for (const std::vector<int>& slots : {b.inputs, Written(b)}) {
        for (int slot : slots) {
          Check(out < 0 || slot < 0 || !Overlap(At(out), At(slot)), "[",
                a.node->Where(), "] writes memory of [", b.node->Where(),
                "], which runs at the same time");
        }
      }
    }
  }

  void CheckOperands(size_t number) const {
    const Step& step = plan_.steps[number];
    const Node& node = *step.node;
    std::string where = node.Where();
    Check(step.inputs.size() == node.inputs().size() &&
              step.outputs.size() == node.outputs().size(),
          "[", where, "] expected a slot for every operand");
    for (size_t i = 0; i < step.inputs.size(); ++i) {
      Check((node.in(i) == nullptr) == (step.inputs[i] < 0), "[", where,
            "] expected no slot for an operand that is left out");
      if (node.in(i)) CheckRead(At(step.inputs[i]), node.in(i), where);
    }
    for (const Guard& guard : step.guards) {
      CheckRead(At(guard.slot), At(guard.slot).value, where);
    }
  }

  // It holds nothing that a later step could read.
  void StoreWorkspace(const Step& step) {
    if (step.workspace < 0) return;
    std::string where = step.node->Where();
    const Slot& workspace = At(step.workspace);
    for (const std::vector<int>* slots : {&step.inputs, &step.outputs}) {
      for (int slot : *slots) {
        Check(slot < 0 || !Overlap(At(slot), workspace), "[", where,
              "] works in the memory of its operands or results");
      }
    }
    Store(workspace, nullptr, where);
  }

  void StoreResults(size_t number, size_t first) {
    const Step& step = plan_.steps[number];
    const Node& node = *step.node;
    std::string where = node.Where();
    StoreWorkspace(step);
    for (size_t o = 0; o < step.outputs.size(); ++o) {
      Check((node.out(o) == nullptr) == (step.outputs[o] < 0), "[", where,
            "] expected no slot for a result that is left out");
      if (!node.out(o)) continue;
      const Slot& out = At(step.outputs[o]);
      for (size_t i = 0; i < step.inputs.size(); ++i) {
        if (node.in(i)) CheckInPlace(step, i, o);
      }
      for (size_t other = 0; other < o; ++other) {
        Check(!node.out(other) || !Overlap(At(step.outputs[other]), out), "[",
              where, "] outputs ", other, " and ", o, " overlap");
      }
      Check(out.place != SlotPlace::kState || first >= plan_.first_write, "[",
            where, "] writes state before the step that is said to be first");
      Store(out, node.out(o), where);
    }
  }

  void CheckEnd() const {
    Check(plan_.outputs.size() == graph_.outputs.size(),
          "expected a slot for every graph output");
    for (size_t i = 0; i < graph_.outputs.size(); ++i) {
      auto [value, slot] = plan_.outputs[i];
      Check(value == graph_.outputs[i] && At(slot).place == SlotPlace::kFetched,
            "expected output \"", graph_.outputs[i]->name,
            "\" in a buffer of its own");
      CheckRead(At(slot), value, "graph output");
    }
    std::unordered_map<const Value*, const Value*> next;
    for (const StateBinding& binding : graph_.state) {
      next[binding.state] = Content(binding.next);
    }
    for (size_t i = 0; i < plan_.states.size(); ++i) {
      const Value* state = plan_.states[i];
      auto it = next.find(state);
      const Value* expected = it == next.end() ? state : it->second;
      Check(states_[i] == expected || BytesOf(*state) == 0, "expected state \"",
            state->name, "\" to end as \"", expected->name, "\", got \"",
            states_[i]->name, "\"");
      if (it != next.end()) next.erase(it);
    }
    for (auto [state, value] : next) {
      Check(state == value, "state \"", state->name, "\" is never written");
    }
  }

  const Plan& plan_;
  const Graph& graph_;
  const KernelRegistry& kernels_;
  std::unordered_set<const Node*> runs_;
  // The calls of each queue that run beside other steps: (first step, steps).
  // The first `landed_` of them are done.
  std::array<std::vector<std::pair<size_t, size_t>>, kSides> flights_;
  std::array<size_t, kSides> landed_ = {};
  std::vector<const Value*> states_, fetched_;  // what they hold
  // begin → (end, content); no two overlap.
  std::map<size_t, std::pair<size_t, const Value*>> arena_;
};

}  // namespace

void CheckPlan(const Plan& plan, const Graph& graph,
               const KernelRegistry& kernels) {
  Simulator(plan, graph, kernels).Run();
}

}  // namespace onnx_fp8
