// SPDX-License-Identifier: Apache-2.0
#include "providers/plan/plan.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <ranges>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/check.h"
#include "graph/graph.h"
#include "graph/needed_when.h"
#include "graph/op_facts.h"
#include "graph/print.h"
#include "providers/kernel.h"
#include "providers/plan/arena.h"
#include "providers/plan/flights.h"
#include "providers/plan/free_early.h"
#include "providers/plan/order.h"
#include "providers/plan/plan_workspace.h"
#include "providers/plan/run_together.h"
#include "providers/view.h"

namespace onnx_fp8 {
namespace {

// The memory of a value and of all views of it.
struct Memory {
  const Value* value;  // the one that is not a view
  size_t bytes;
  int writer = -1;           // step that fills it; -1: full from the start
  std::vector<int> readers;  // steps
  bool kept = false;         // read after the last step
  SlotPlace place = SlotPlace::kArena;
  size_t at = 0;
};

// `next` → `state`, as indices of memories.
struct Assignment {
  int state, next;
  int write = -1;  // the InPlaceWrite that may make it needless
};

// Errors: an unknown type, more than any machine has.
size_t CheckedBytes(const Value& value) {
  // Far beyond any machine; sums over all values of a graph stay in 64 bits.
  constexpr size_t kMaxBytes = size_t{1} << 47;
  Check(value.concrete() && ByteSize(value.dtype) > 0, "[value ", value.name,
        "] expected a known dtype and shape, got ", Name(value.dtype),
        value.shape ? ToString(*value.shape) : " of unknown rank");
  auto elements = static_cast<size_t>(NumElements(*value.shape));
  Check(elements < kMaxBytes / ByteSize(value.dtype), "[value ", value.name,
        "] expected a tensor that fits into memory, got shape ",
        ToString(*value.shape));
  return BytesOf(value);
}

// Collectives that run in one call: one of them, or a bucket.
using CollectiveCall = std::vector<int>;  // steps

// A gather sends bytes, whatever their dtype.
bool InOneBucket(const Node& a, const Node& b) {
  return a.Int("bucket", 0) != 0 && a.Int("bucket", 0) == b.Int("bucket", 0) &&
         a.op == b.op &&
         (a.in(0)->dtype == b.in(0)->dtype ||
          FactsOf(a).collective == Collective::kAllGather) &&
         a.Int("ranks", 1) == b.Int("ranks", 1) &&
         a.String("group", "") == b.String("group", "") &&
         a.String("reduction", "") == b.String("reduction", "");
}

// The first step of a call waits for the operands of all.
void WaitForAll(const std::vector<CollectiveCall>& calls, size_t steps,
                std::vector<std::pair<int, int>>* edges) {
  std::vector<int> first(steps);
  std::iota(first.begin(), first.end(), 0);
  for (const CollectiveCall& call : calls) {
    for (int step : call) first[static_cast<size_t>(step)] = call.front();
  }
  for (size_t i = 0, n = edges->size(); i < n; ++i) {
    const auto [from, to] = (*edges)[i];
    const int call = first[static_cast<size_t>(to)];
    if (call != to) edges->emplace_back(from, call);
  }
}

// All ranks run collectives in one order: the graph's, as far as the data edges
// allow. The planner would otherwise order them by sizes, which may differ
// between ranks. Adds an edge from each collective to the next one, and from
// the operands of a bucket to its first node. Returns the calls in that order.
// `nodes`: the steps' nodes; `entries`: their kernels; `edges` (from, to): the
// data dependencies.
std::vector<CollectiveCall> ChainCollectives(
    const std::vector<const Node*>& nodes,
    const std::vector<const KernelEntry*>& entries,
    std::vector<std::pair<int, int>>* edges) {
  std::vector<CollectiveCall> calls;
  if (std::ranges::none_of(
          nodes, [](const Node* node) { return IsCollective(*node); })) {
    return calls;
  }
  std::vector<int> given(nodes.size());
  std::iota(given.begin(), given.end(), 0);
  std::vector<InPlaceWrite> none;
  for (int step : OrderSteps(given, *edges, none)) {
    const auto i = static_cast<size_t>(step);
    if (!IsCollective(*nodes[i])) continue;
    const bool joins =
        !calls.empty() && entries[i]->traits.many != nullptr &&
        InOneBucket(*nodes[static_cast<size_t>(calls.back()[0])], *nodes[i]);
    if (!joins) calls.emplace_back();
    calls.back().push_back(step);
  }
  WaitForAll(calls, nodes.size(), edges);
  int last = -1;
  for (const CollectiveCall& call : calls) {
    for (int step : call) {
      if (last >= 0) edges->emplace_back(last, step);
      last = step;
    }
  }
  return calls;
}

// Moves the nodes of a call behind its first one.
void PutSideBySide(const std::vector<CollectiveCall>& calls,
                   std::vector<int>* order) {
  std::unordered_map<int, const CollectiveCall*> call_of;
  for (const CollectiveCall& call : calls) {
    for (int step : call) call_of[step] = &call;
  }
  std::vector<int> moved;
  for (int step : *order) {
    const auto it = call_of.find(step);
    if (it == call_of.end()) {
      moved.push_back(step);
    } else if (step == it->second->front()) {
      moved.insert(moved.end(), it->second->begin(), it->second->end());
    }
  }
  *order = std::move(moved);
}

// Adds the results of collectives. A node that they depend on runs on all
// ranks, whatever a flag of this rank says.
void AddCollectiveResults(const std::vector<const Node*>& nodes,
                          std::vector<const Value*>* values) {
  for (const Node* node : nodes) {
    if (!IsCollective(*node)) continue;
    for (const Value* value : node->outputs()) {
      if (value) values->push_back(value);
    }
  }
}

// Nodes that a provider has no kernel for.
class MissingKernels {
 public:
  void Add(const Node& node) {
    std::string op =
        node.domain.empty() ? node.op : node.domain + "." + node.op;
    auto it = ops_.emplace(op, std::pair(0, node.Where())).first;
    ++it->second.first;
  }

  // Errors: a node has no kernel; one message lists all such nodes by op.
  void CheckNone() const {
    std::string text;
    for (const auto& [op, nodes] : ops_) {
      text += Concat(text.empty() ? " " : "; ", op, ": ", nodes.first,
                     nodes.first == 1 ? " node, [" : " nodes, first [",
                     nodes.second, "]");
    }
    Check(text.empty(), "expected a kernel for every op, got none for", text);
  }

 private:
  // Nodes of an op, and where the first one is.
  std::map<std::string, std::pair<size_t, std::string>> ops_;
};

// The nodes on which outputs and next values of state depend. Adds these values
// and all that such a node reads to `read`. Errors: state that is no
// initializer; a value without a producer.
std::unordered_set<const Node*> FindLive(
    const Graph& graph, std::unordered_set<const Value*>* read) {
  std::unordered_set<const Node*> live;
  std::vector<const Value*> todo(graph.outputs.begin(), graph.outputs.end());
  for (const StateBinding& binding : graph.state) {
    Check(binding.state->is_initializer(), "[value ", binding.state->name,
          "] expected state that is an initializer");
    todo.push_back(binding.next);
  }
  while (!todo.empty()) {
    const Value* value = todo.back();
    todo.pop_back();
    if (!read->insert(value).second) continue;
    const Node* node = value->producer;
    if (!node) {
      Check(value->is_input || value->is_initializer(), "[value ", value->name,
            "] expected a producer, got none");
      continue;
    }
    if (!live.insert(node).second) continue;
    for (const Value* input : node->inputs()) {
      if (input) todo.push_back(input);
    }
  }
  return live;
}

// The order of the graph, 0 … steps-1, except for steps that free memory early
// (free_early.h).
std::vector<int> GivenOrder(const std::vector<Memory>& memories,
                            const std::vector<Assignment>& assignments,
                            size_t steps) {
  std::vector<Occupant> occupants;
  std::vector<size_t> results(steps);
  std::unordered_set<int> taken;  // next values of state
  for (const Assignment& a : assignments) taken.insert(a.next);
  for (size_t i = 0; i < memories.size(); ++i) {
    const Memory& m = memories[i];
    bool stays = m.place != SlotPlace::kArena || m.writer < 0 ||
                 taken.contains(static_cast<int>(i));
    if (m.writer >= 0) {
      size_t& bytes = results[static_cast<size_t>(m.writer)];
      bytes = stays || bytes == kElsewhere ? kElsewhere : bytes + m.bytes;
    }
    occupants.push_back({m.writer, stays ? 0 : m.bytes, m.readers});
  }
  return OrderThatFreesEarly(occupants, results);
}

// Gives a cell to each amax that one kernel measures and another one uses, and
// to each that a kernel measures for itself.
class Amaxes {
 public:
  Amaxes(const KernelRegistry& kernels, Plan& plan)
      : kernels_(kernels), plan_(plan) {
    for (Step& step : plan.steps) step_of_[step.node] = &step;
  }

  void Run() {
    for (Step& step : plan_.steps) {
      const KernelTraits& traits = TraitsOf(*step.node);
      if (traits.uses_amax && step.node->in(0)) {
        step.known_amax = MeasuredBefore(step.node->in(0));
      }
      if (step.known_amax < 0 && traits.own_amaxes > 0) {
        step.own_amax = static_cast<int>(plan_.amaxes);
        plan_.amaxes += traits.own_amaxes;
      }
    }
  }

 private:
  const KernelTraits& TraitsOf(const Node& node) const {
    return kernels_.Find(node.domain, node.op)->traits;
  }

  // The step that computes x; a view passes on its input. null: no step does.
  Step* WriterOf(const Value*& x) const {
    while (x->producer) {
      auto it = step_of_.find(x->producer);
      if (it != step_of_.end()) return it->second;
      x = x->producer->in(0);
    }
    return nullptr;
  }

  // The cell in which the kernel that computes x leaves its amax; -1: it can't.
  int MeasuredBefore(const Value* x) {
    if (x->dtype != DType::kFloat) return -1;
    Step* writer = WriterOf(x);
    if (!writer || x->dtype != DType::kFloat) return -1;
    const Node& node = *writer->node;
    for (size_t output : TraitsOf(node).measures) {
      if (output >= node.outputs().size() || node.out(output) != x) continue;
      writer->measured_amax.resize(node.outputs().size(), -1);
      int& cell = writer->measured_amax[output];
      if (cell < 0) cell = static_cast<int>(plan_.amaxes++);
      return cell;
    }
    return -1;
  }

  const KernelRegistry& kernels_;
  Plan& plan_;
  std::unordered_map<const Node*, Step*> step_of_;
};

class Planner {
 public:
  Planner(const Graph& graph, const KernelRegistry& kernels, Device device,
          void* queue)
      : graph_(graph),
        kernels_(kernels),
        on_host_(device == Device::kHost),
        queue_(queue) {
    plan_.alignment = on_host_ ? kHostAlignment : kDeviceAlignment;
  }

  Plan Run() {
    for (const Node* node : FindLive(graph_, &read_)) {
      number_.emplace(node, kLive);
    }
    FindSteps();
    FindGuards();
    FindMemories();
    PlaceOutputs();
    BindState();
    OrderNodes();
    FindUpdates();
    FindWorkspaces();
    JoinSteps();
    PlaceResults();
    Emit();
    Amaxes(kernels_, plan_).Run();
    return std::move(plan_);
  }

 private:
  // Marks of live nodes that are not steps, or are not yet known to be steps.
  static constexpr int kLive = -1, kView = -2;

  int NumberOf(const Node& node) const {
    auto it = number_.find(&node);
    return it == number_.end() ? kLive : it->second;
  }

  bool NoChange(const StateBinding& binding) {
    return Root(binding.next) == binding.state;
  }

  // The value in whose memory `value` lies: itself, or the input of a view.
  const Value* Root(const Value* value) {
    std::vector<const Value*> path;
    while (value->producer && NumberOf(*value->producer) == kView) {
      auto known = root_of_.find(value);
      if (known != root_of_.end()) {
        value = known->second;
        break;
      }
      path.push_back(value);
      if (path.size() > number_.size()) {
        Fail("[", value->producer->Where(), "] lies on a cycle of the graph");
      }
      value = value->producer->in(0);
    }
    for (const Value* view : path) root_of_[view] = value;
    return value;
  }

  // Live nodes are views or become steps, in the order of the graph.
  void FindSteps() {
    MissingKernels missing;
    for (const Node& node : graph_.nodes()) {
      auto live = number_.find(&node);
      if (live == number_.end()) continue;
      const KernelEntry* entry = kernels_.Find(node.domain, node.op);
      if (entry && CanBeView(node, entry->traits) && IsView(node)) {
        live->second = kView;
      } else if (entry && entry->kernel && node.Subgraphs().empty()) {
        live->second = static_cast<int>(nodes_.size());
        nodes_.push_back(&node);
        entries_.push_back(entry);
      } else {
        missing.Add(node);
      }
    }
    missing.CheckNone();
  }

  void FindGuards() {
    if (!on_host_) return;
    std::vector<const Value*> roots(graph_.outputs.begin(),
                                    graph_.outputs.end());
    for (const StateBinding& b : graph_.state) roots.push_back(b.next);
    AddCollectiveResults(nodes_, &roots);
    needed_ = NeededWhen(graph_, roots);
  }

  // A view has only one result that anybody reads: the first.
  bool IsView(const Node& node) {
    const Value* x = node.in(0);
    const Value* y = node.out(0);
    for (size_t i = 1; i < node.outputs().size(); ++i) {
      if (node.out(i) && read_.contains(node.out(i))) return false;
    }
    Check(x != nullptr && y != nullptr, "[", node.Where(),
          "] expected an input and an output, got none");
    size_t from = CheckedBytes(*x), to = CheckedBytes(*y);
    Check(StoredAs(*x) == StoredAs(*y) && from == to, "[", node.Where(),
          "] expected an output of the input's dtype and size, got ",
          TypeText(*x), " and ", TypeText(*y));
    return true;
  }

  int MemoryOf(const Value* value) {
    auto known = memory_of_.find(value);
    if (known != memory_of_.end()) return known->second;
    const Value* root = Root(value);
    int memory = root == value ? NewMemory(root) : MemoryOf(root);
    memory_of_.emplace(value, memory);
    return memory;
  }

  int NewMemory(const Value* root) {
    Memory memory{root, CheckedBytes(*root)};
    if (root->producer) {
      memory.writer = number_.at(root->producer);
    } else if (bound_.contains(root) ||
               (root->is_initializer() && root->role != Role::kNone)) {
      memory.place = SlotPlace::kState;
      memory.at = plan_.states.size();
      plan_.states.push_back(root);
      plan_.bound.push_back(bound_.contains(root));
    } else if (root->is_input) {
      memory.place = SlotPlace::kFeed;
      memory.at = plan_.feeds.size();
      plan_.feeds.push_back(root);
    } else {
      memory.place = SlotPlace::kConstant;
      memory.at = plan_.constants.size();
      plan_.constants.push_back(root);
    }
    memories_.push_back(std::move(memory));
    return static_cast<int>(memories_.size()) - 1;
  }

  void FindMemories() {
    for (const StateBinding& binding : graph_.state) {
      if (NoChange(binding)) continue;
      Check(bound_.insert(binding.state).second, "[value ", binding.state->name,
            "] is state that is bound twice");
    }
    for (size_t step = 0; step < nodes_.size(); ++step) {
      auto read = [&](const Value* value) {
        auto& readers = memories_[Index(MemoryOf(value))].readers;
        auto number = static_cast<int>(step);
        if (readers.empty() || readers.back() != number) {
          readers.push_back(number);
        }
      };
      for (const Value* value : nodes_[step]->inputs()) {
        if (value) read(value);
      }
      for (const Condition& c : ConditionsOf(needed_, nodes_[step])) {
        read(c.flag);
      }
      for (const Value* value : nodes_[step]->outputs()) {
        if (value) MemoryOf(value);
      }
    }
  }

  // A memory like `like`; it is filled from `like` before the first step.
  int Snapshot(int like) {
    Memory memory{memories_[Index(like)].value, memories_[Index(like)].bytes};
    memories_.push_back(std::move(memory));
    auto copy = static_cast<int>(memories_.size()) - 1;
    snapshots_.push_back({like, copy});
    return copy;
  }

  void PlaceOutputs() {
    std::unordered_map<int, int> snapshots;
    for (const Value* value : graph_.outputs) {
      int memory = MemoryOf(value);
      if (memories_[Index(memory)].writer < 0) {
        auto [it, added] = snapshots.emplace(memory, -1);
        if (added) it->second = Snapshot(memory);
        memory = it->second;
      }
      Memory& m = memories_[Index(memory)];
      if (m.place != SlotPlace::kFetched) {
        m.place = SlotPlace::kFetched;
        m.at = plan_.fetched.size();
        plan_.fetched.push_back(m.value);
      }
      plan_.outputs.emplace_back(value, AddSlot(value, memory));
    }
  }

  // True if step `writer` may write `out` to the place of `in`, or does not
  // read `in`.
  bool MayOverwrite(int writer, int in, int out) {
    const Node& node = *nodes_[Index(writer)];
    const auto& pairs = entries_[Index(writer)]->traits.in_place;
    const Memory& from = memories_[Index(in)];
    const Memory& to = memories_[Index(out)];
    if (from.bytes != to.bytes) return false;
    bool reads = false;
    for (size_t i = 0; i < node.inputs().size(); ++i) {
      if (!node.in(i) || MemoryOf(node.in(i)) != in) continue;
      reads = true;
      bool paired = std::ranges::any_of(pairs, [&](auto pair) {
        const Value* value =
            pair.second < 0 ? nullptr : node.out(Index(pair.second));
        return pair.first == static_cast<int>(i) && value == to.value;
      });
      if (!paired) return false;
    }
    return !reads ||
           ByteSize(StoredAs(*from.value)) == ByteSize(StoredAs(*to.value));
  }

  // Whether PutSideBySide may move the node over a reader of old state.
  static bool MayMove(const Node& node) {
    return IsCollective(node) && node.Int("bucket", 0) != 0;
  }

  void BindState() {
    std::unordered_set<int> taken;  // next values that are written into state
    std::unordered_map<int, int> snapshots;
    for (const StateBinding& binding : graph_.state) {
      if (NoChange(binding)) continue;
      Check(binding.state->dtype == binding.next->dtype &&
                binding.state->shape == binding.next->shape,
            "[value ", binding.state->name,
            "] expected a next value of the same dtype and shape, got \"",
            binding.next->name, "\"");
      int state = MemoryOf(binding.state);
      int next = MemoryOf(binding.next);
      Assignment assignment{state, next};
      const Memory& from = memories_[Index(next)];
      int writer = from.writer;
      if (writer >= 0 && from.place == SlotPlace::kArena &&
          !MayMove(*nodes_[Index(writer)]) &&
          MayOverwrite(writer, state, next) && taken.insert(next).second) {
        InPlaceWrite write{writer, memories_[Index(state)].readers, from.bytes};
        std::erase(write.readers, writer);
        assignment.write = static_cast<int>(writes_.size());
        writes_.push_back(std::move(write));
      } else if (from.place == SlotPlace::kState && plan_.bound[from.at]) {
        auto [it, added] = snapshots.emplace(next, -1);
        if (added) it->second = Snapshot(next);
        assignment.next = it->second;
      }
      assignments_.push_back(assignment);
    }
  }

  // Orders the nodes by their data and by the wish to write state in place. A
  // next value whose wish was not granted is copied after the last step.
  void OrderNodes() {
    for (const Memory& memory : memories_) {
      if (memory.writer < 0) continue;
      for (int r : memory.readers) edges_.emplace_back(memory.writer, r);
    }
    calls_ = ChainCollectives(nodes_, entries_, &edges_);
    order_ = OrderSteps(GivenOrder(memories_, assignments_, nodes_.size()),
                        edges_, writes_);
    PutSideBySide(calls_, &order_);
    position_.assign(nodes_.size(), -1);
    for (size_t i = 0; i < order_.size(); ++i) {
      position_[Index(order_[i])] = static_cast<int>(i);
    }
    SharePositions();
    for (size_t i = 0; i < nodes_.size(); ++i) {
      Check(position_[i] >= 0, "[", nodes_[i]->Where(),
            "] lies on a cycle of the graph");
    }
    for (const Assignment& assignment : assignments_) {
      Memory& next = memories_[Index(assignment.next)];
      if (assignment.write >= 0 && writes_[Index(assignment.write)].granted) {
        next.place = SlotPlace::kState;
        next.at = memories_[Index(assignment.state)].at;
      } else {
        next.kept = true;
        copies_.push_back({assignment.next, assignment.state});
      }
    }
  }

  // A call of collectives is one step.
  void SharePositions() {
    for (const CollectiveCall& call : calls_) {
      for (int step : call) {
        position_[Index(step)] = position_[Index(call.front())];
      }
    }
  }

  // The order does not depend on them: they live for one step only.
  void FindWorkspaces() {
    workspace_of_.assign(nodes_.size(), -1);
    for (size_t i = 0; i < nodes_.size(); ++i) {
      auto value = WorkspaceFor(*nodes_[i], entries_[i]->traits, queue_);
      if (!value) continue;
      workspace_of_[i] = static_cast<int>(memories_.size());
      Memory& memory = memories_.emplace_back(value.get(), BytesOf(*value));
      memory.writer = static_cast<int>(i);
      plan_.workspaces.push_back(std::move(value));
    }
  }

  // What a step writes: its results, and its workspace.
  std::vector<int> WrittenBy(int step) {
    std::vector<int> written;
    for (const Value* value : nodes_[Index(step)]->outputs()) {
      if (value) written.push_back(MemoryOf(value));
    }
    int workspace = workspace_of_[Index(step)];
    if (workspace >= 0) written.push_back(workspace);
    return written;
  }

  // Steps that run together get the position of the first of them. They are of
  // one queue.
  void JoinSteps() {
    std::set<KernelOfMany> in_turn;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (!updates_[i]) in_turn.insert(entries_[i]->traits.many);
    }
    std::vector<KernelOfMany> many;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      const KernelOfMany own = entries_[i]->traits.many;
      const bool joins = ConditionsOf(needed_, nodes_[i]).empty() &&
                         !IsCollective(*nodes_[i]) &&
                         !(updates_[i] && in_turn.contains(own));
      many.push_back(joins ? own : nullptr);
    }
    if (std::ranges::all_of(many, std::logical_not())) return;
    for (const InPlaceWrite& write : writes_) {
      if (!write.granted) continue;
      for (int r : write.readers) edges_.emplace_back(r, write.writer);
    }
    std::vector<Buffer> buffers = FindBuffers();
    for (Buffer& b : buffers) b.bytes = Padded(b.bytes, plan_.alignment);
    std::vector<int> begins = RunTogether(order_, many, edges_, buffers);
    for (size_t i = 0; i < order_.size(); ++i) {
      position_[Index(order_[i])] = begins[i];
    }
    SharePositions();
  }

  bool ReadsHostState(int step) {
    return std::ranges::any_of(
        nodes_[Index(step)]->inputs(), [&](const Value* in) {
          return in && memories_[Index(MemoryOf(in))].value->on_host;
        });
  }

  // The steps of the queue of updates: ones that read state in the host's
  // memory, and ones that follow from these. What a collective needs of the
  // latter runs in its turn.
  void FindUpdates() {
    updates_.assign(nodes_.size(), false);
    if (on_host_) return;
    std::vector<bool> follows(nodes_.size());
    for (int step : order_) {
      const Node& node = *nodes_[Index(step)];
      updates_[Index(step)] = ReadsHostState(step);
      const auto is_behind = [&](const Value* in) {
        const int writer = in ? memories_[Index(MemoryOf(in))].writer : -1;
        return writer >= 0 &&
               (updates_[Index(writer)] || follows[Index(writer)]);
      };
      follows[Index(step)] =
          !IsCollective(node) && std::ranges::any_of(node.inputs(), is_behind);
    }
    for (int step : std::views::reverse(order_)) {
      if (!follows[Index(step)]) continue;
      const auto stays = [&](const Value* out) {
        return !out ||
               std::ranges::all_of(memories_[Index(MemoryOf(out))].readers,
                                   [&](int r) { return updates_[Index(r)]; });
      };
      if (std::ranges::all_of(nodes_[Index(step)]->outputs(), stays)) {
        updates_[Index(step)] = true;
      }
    }
  }

  std::optional<Side> SideOf(int step) const {
    if (IsCollective(*nodes_[Index(step)])) return Side::kCollectives;
    if (updates_[Index(step)]) return Side::kUpdates;
    return std::nullopt;
  }

  // The calls of a queue, in the plan's order.
  std::vector<std::vector<int>> CallsOf(Side side) const {
    if (side == Side::kCollectives) return calls_;
    std::vector<std::vector<int>> calls;
    for (int step : order_) {
      if (!updates_[Index(step)]) continue;
      const bool joins =
          !calls.empty() &&
          position_[Index(step)] == position_[Index(calls.back().front())];
      if (!joins) calls.emplace_back();
      calls.back().push_back(step);
    }
    return calls;
  }

  // A call is needed by the first step that reads a result, or that writes
  // state that the call reads; steps of the queue of updates find it done. It
  // holds memory if it updates state in the host's memory, or if its operands
  // take more of the arena than its results (ReduceScatter). There are never
  // more than two such calls under way, with what follows from an update.
  SideCall Describe(Side side, const std::vector<int>& steps,
                    const std::map<size_t, int>& writers) {
    SideCall call{.begin = position_[Index(steps.front())],
                  .count = static_cast<int>(steps.size()),
                  .needed = static_cast<int>(order_.size()),
                  .holds = false,
                  .bounded = side == Side::kUpdates};
    const auto needed_by = [&](int step) {
      if (side == Side::kUpdates && updates_[Index(step)]) return;
      call.needed = std::min(call.needed, position_[Index(step)]);
    };
    size_t kept = 0, made = 0;  // bytes of operands and results
    for (int step : steps) {
      const Node& node = *nodes_[Index(step)];
      call.holds |= side == Side::kUpdates && ReadsHostState(step);
      for (const Value* result : node.outputs()) {
        if (!result) continue;
        const Memory& m = memories_[Index(MemoryOf(result))];
        made += m.bytes;
        for (int reader : m.readers) needed_by(reader);
      }
      for (const Value* operand : node.inputs()) {
        if (!operand) continue;
        const Memory& m = memories_[Index(MemoryOf(operand))];
        if (m.place == SlotPlace::kArena) kept += m.bytes;
        if (m.place != SlotPlace::kState || !writers.contains(m.at)) continue;
        const int writer = writers.at(m.at);
        if (position_[Index(writer)] > call.begin) needed_by(writer);
      }
    }
    if (side == Side::kCollectives) call.holds = call.bounded = kept > made;
    return call;
  }

  // How long calls run beside other steps.
  void FindAllFlights() {
    std::map<size_t, int> writers;  // steps, by the state that they write
    for (const Memory& m : memories_) {
      if (m.place == SlotPlace::kState && m.writer >= 0)
        writers[m.at] = m.writer;
    }
    lands_.assign(nodes_.size(), -1);
    for (Side side : kAllSides) {
      const std::vector<std::vector<int>> calls = CallsOf(side);
      std::vector<SideCall> described;
      for (const std::vector<int>& steps : calls) {
        described.push_back(Describe(side, steps, writers));
      }
      std::vector<Flight>& flights = flights_[IndexOf(side)];
      flights = FindFlights(described, static_cast<int>(order_.size()));
      for (size_t i = 0; i < calls.size(); ++i) {
        for (int step : calls[i]) lands_[Index(step)] = flights[i].end;
      }
    }
  }

  // Lifetimes of values in the arena, one buffer for results that pass on their
  // place.
  std::vector<Buffer> FindBuffers() {
    FindAllFlights();
    std::vector<Buffer> buffers;
    buffer_of_.assign(memories_.size(), -1);
    last_.assign(memories_.size(), -1);
    for (size_t i = 0; i < memories_.size(); ++i) {
      const Memory& m = memories_[i];
      if (m.writer >= 0) {
        last_[i] =
            std::max(position_[Index(m.writer)], lands_[Index(m.writer)]);
      }
      for (int reader : m.readers) {
        last_[i] = std::max(last_[i], position_[Index(reader)]);
      }
      if (m.kept) last_[i] = static_cast<int>(order_.size());
      if (m.place != SlotPlace::kArena || m.writer >= 0) continue;
      buffer_of_[i] = static_cast<int>(buffers.size());
      buffers.push_back({-1, last_[i], m.bytes});
    }
    for (int step : order_) {
      std::vector<int> taken;
      for (int out : WrittenBy(step)) {
        if (memories_[Index(out)].place != SlotPlace::kArena) continue;
        int in = DyingOperand(step, out, taken);
        int& buffer = buffer_of_[Index(out)];
        if (in >= 0) {
          taken.push_back(in);
          buffer = buffer_of_[Index(in)];
          buffers[Index(buffer)].end = last_[Index(out)];
        } else {
          buffer = static_cast<int>(buffers.size());
          buffers.push_back({position_[Index(step)], last_[Index(out)],
                             memories_[Index(out)].bytes});
        }
      }
      HoldOperands(step, taken, buffers);
    }
    return buffers;
  }

  // Operands of a call in another queue stay until it is done, except `taken`
  // ones.
  void HoldOperands(int step, const std::vector<int>& taken,
                    std::vector<Buffer>& buffers) {
    if (lands_[Index(step)] < 0) return;
    for (const Value* value : nodes_[Index(step)]->inputs()) {
      const int in = value ? MemoryOf(value) : -1;
      const int buffer = in < 0 ? -1 : buffer_of_[Index(in)];
      if (buffer < 0 || std::ranges::count(taken, in) > 0) continue;
      last_[Index(in)] = std::max(last_[Index(in)], lands_[Index(step)]);
      int& end = buffers[Index(buffer)].end;
      end = std::max(end, last_[Index(in)]);
    }
  }

  // Offsets in the arena.
  void PlaceResults() {
    std::vector<Buffer> buffers = FindBuffers();
    plan_.arena_bytes = PlaceBuffers(buffers, plan_.alignment);
    plan_.live_bytes = LiveBytes(buffers, plan_.alignment);
    for (size_t i = 0; i < memories_.size(); ++i) {
      if (memories_[i].place != SlotPlace::kArena) continue;
      memories_[i].at = buffers[Index(buffer_of_[i])].offset;
      const Memory& m = memories_[i];
      plan_.naive_bytes += Padded(m.bytes, plan_.alignment);
      if (m.bytes == 0) continue;
      int first = m.writer < 0 ? -1 : position_[Index(m.writer)];
      plan_.tenants.push_back({m.value, m.at, m.bytes, first, last_[i]});
    }
  }

  // An operand in the arena that no step but this one reads now or later, and
  // whose place the result `out` may take; -1 if there is none.
  int DyingOperand(int step, int out, const std::vector<int>& taken) {
    const Node& node = *nodes_[Index(step)];
    for (const Value* value : node.inputs()) {
      if (!value) continue;
      int in = MemoryOf(value);
      if (memories_[Index(in)].place == SlotPlace::kArena &&
          last_[Index(in)] == position_[Index(step)] &&
          std::ranges::find(taken, in) == taken.end() &&
          MayOverwrite(step, in, out) && IsAlone(step, in)) {
        return in;
      }
    }
    return -1;
  }

  // Whether no step that runs together with this one reads the memory.
  bool IsAlone(int step, int memory) const {
    return std::ranges::none_of(memories_[Index(memory)].readers, [&](int r) {
      return r != step && position_[Index(r)] == position_[Index(step)];
    });
  }

  int AddSlot(const Value* value, int memory) {
    slot_memory_.push_back(memory);
    plan_.slots.push_back({value, SlotPlace::kArena, 0});
    return static_cast<int>(plan_.slots.size()) - 1;
  }

  int SlotOf(const Value* value) {
    if (!value) return -1;
    auto [it, added] = slot_of_.emplace(value, -1);
    if (added) it->second = AddSlot(value, MemoryOf(value));
    return it->second;
  }

  int SlotOfMemory(int memory) {
    return AddSlot(memories_[Index(memory)].value, memory);
  }

  // Errors: the host does not know the value of operand i.
  int HostSlotOf(const Node& node, size_t i) {
    const Value* value = node.in(i);
    int memory = MemoryOf(value);
    Check(memories_[Index(memory)].place == SlotPlace::kConstant, "[",
          node.Where(), "] expected a constant as operand ", i,
          ", which its kernel reads on the host, got the computed value or "
          "input \"",
          value->name, "\"");
    auto [it, added] = host_slot_of_.emplace(value, -1);
    if (added) {
      it->second = AddSlot(value, memory);
      plan_.slots.back().place = SlotPlace::kHost;
    }
    return it->second;
  }

  // Writes steps and copies in their final order, and at last the place of each
  // slot's memory.
  void Emit() {
    for (auto [from, to] : snapshots_) {
      plan_.before.push_back({SlotOfMemory(from), SlotOfMemory(to)});
    }
    plan_.first_write = order_.size();
    for (int number : order_) {
      const Node& node = *nodes_[Index(number)];
      Step step{&node, entries_[Index(number)]->kernel, {}, {}};
      size_t begin = Index(position_[Index(number)]);
      const KernelTraits& traits = entries_[Index(number)]->traits;
      for (const Value* value : node.inputs()) {
        step.inputs.push_back(SlotOf(value));
      }
      if (!on_host_) {
        for (size_t i : traits.host_inputs) {
          if (i < node.inputs().size() && node.in(i)) {
            step.inputs[i] = HostSlotOf(node, i);
          }
        }
      }
      for (const Value* value : node.outputs()) {
        step.outputs.push_back(SlotOf(value));
        if (value &&
            memories_[Index(MemoryOf(value))].place == SlotPlace::kState) {
          plan_.first_write = std::min(plan_.first_write, begin);
        }
      }
      int workspace = workspace_of_[Index(number)];
      if (workspace >= 0) step.workspace = SlotOfMemory(workspace);
      for (const Condition& c : ConditionsOf(needed_, &node)) {
        step.guards.push_back({SlotOf(c.flag), c.value});
      }
      step.many = traits.many;
      step.side = SideOf(number);
      if (begin < plan_.steps.size()) ++plan_.steps[begin].together;
      plan_.steps.push_back(std::move(step));
    }
    for (Side side : kAllSides) {
      MarkFlights(side, flights_[IndexOf(side)], &plan_.steps);
    }
    for (auto [from, to] : copies_) {
      plan_.after.push_back({SlotOfMemory(from), SlotOfMemory(to)});
    }
    for (size_t i = 0; i < plan_.slots.size(); ++i) {
      const Memory& memory = memories_[Index(slot_memory_[i])];
      Slot& slot = plan_.slots[i];
      if (slot.place != SlotPlace::kHost) slot.place = memory.place;
      slot.at = memory.at;
    }
  }

  const Graph& graph_;
  const KernelRegistry& kernels_;
  const bool on_host_;  // whether the provider's memory is the host's
  void* const queue_;
  Plan plan_;
  std::unordered_set<const Value*> read_;
  std::unordered_set<const Value*> bound_;  // state that gets a new value
  std::vector<const Node*> nodes_;          // by number, in graph order
  std::vector<const KernelEntry*> entries_;
  std::unordered_map<const Node*, int> number_;  // of live nodes
  NeededMap needed_;
  std::vector<Memory> memories_;
  std::unordered_map<const Value*, const Value*> root_of_;  // of views
  std::unordered_map<const Value*, int> memory_of_;
  std::vector<std::pair<int, int>> snapshots_, copies_;  // memory → memory
  std::vector<Assignment> assignments_;
  std::vector<InPlaceWrite> writes_;
  std::vector<std::pair<int, int>> edges_;  // steps that keep their order
  std::vector<CollectiveCall> calls_;
  std::vector<bool> updates_;  // by step: whether it runs in that queue
  std::array<std::vector<Flight>, kSides> flights_;  // of the queues' calls
  std::vector<int> lands_;  // ends of flights, by step; -1: of no such queue
  std::vector<int> order_;
  std::vector<int> position_;  // of a step, or of the first one of its group
  std::vector<int> last_;      // position at which a memory is read last
  std::vector<int> buffer_of_;
  std::vector<int> workspace_of_;  // memory of a step; -1: none
  std::unordered_map<const Value*, int> slot_of_, host_slot_of_;
  std::vector<int> slot_memory_;
};

}  // namespace

Plan MakePlan(const Graph& graph, const KernelRegistry& kernels, Device device,
              void* queue) {
  Plan plan = Planner(graph, kernels, device, queue).Run();
#ifndef NDEBUG
  CheckPlan(plan, graph, kernels);
#endif
  return plan;
}

}  // namespace onnx_fp8
