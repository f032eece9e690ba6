// SPDX-License-Identifier: Apache-2.0
//
// A plan: which nodes run in which order, and where every tensor lies. It is
// made once per graph of concrete shapes and run many times (executor.h).
//
// Memory. Results of nodes lie in one arena and share it if their lifetimes do
// not overlap. A `view` op does not run: its output is its input's memory. If
// an operand of the same size is not read again, a result takes its place, if
// the kernel allows it (KernelTraits::in_place).
//
// A kernel's workspace (KernelTraits::workspace) lies in the arena, too, while
// its step runs.
//
// Steps that run together (providers/plan/run_together.h) stand side by side.
// None of them reads or writes memory that another one writes.
//
// Beside other steps. Collectives may run beside the steps after them, one
// after another (providers/plan/flights.h). Each is awaited before the first
// step that reads its result or overwrites an operand. Until then operands and
// results keep their memory. The same holds, on a device, for steps that read
// state in the host's memory (Value::on_host). They have a queue of their own,
// in which all that follows from them runs, too, but not collectives and what
// these need.
//
// Branches. A node whose results matter only if a flag has one value
// (graph/needed_when.h) runs after the flag is known, and only for that value.
// Otherwise its results are garbage, and nobody reads them. The host reads the
// flag while the step runs. If the provider's memory is not the host's, it
// can't, and all nodes run.
//
// State. All bindings of Graph::state are assigned at once, after the step. If
// possible, the node that produces a next value writes it straight into the
// state's memory: all other readers of the old value then run before that node.
// Otherwise the value is copied after the last step. It is copied if
// - the node reads the old state and may not work in place on it,
// - a reader of the old value needs the new one (a cycle),
// - the node is a collective of a bucket,
// - the next value is a graph output, is bound to another state too, or is no
//   result of a node (an input, a constant, another state's old value).
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "providers/kernel.h"
#include "providers/side_queue.h"

namespace onnx_fp8 {

enum class SlotPlace {
  kArena,     // `at` is the offset in bytes, a multiple of `alignment`
  kFeed,      // feeds[at], the caller's memory, read only
  kConstant,  // constants[at], read only, in the provider's memory
  kHost,      // constants[at], the graph's own memory, for host_inputs
  kState,     // states[at]
  kFetched,   // fetched[at], a buffer of its own for the caller
};

// The place of one value of the graph, with its dtype and shape.
struct Slot {
  const Value* value;
  SlotPlace place;
  size_t at;
};

// A bool of one element, and the value that it must have.
struct Guard {
  int slot;
  bool value;
};

struct Step {
  const Node* node;
  Kernel kernel;
  std::vector<int> inputs, outputs;  // indices of slots; -1: omitted
  int workspace = -1;                // the slot; -1: none
  // Number of consecutive steps launched in one call of `many`, starting here;
  // 1: it runs alone. Set only on the first of them.
  size_t together = 1;
  KernelOfMany many = nullptr;
  // Which of the plan's amaxes the kernel finds known for input 0, and the
  // first one of its own (-1: none); and which it measures for each output
  // (empty: none).
  int known_amax = -1, own_amax = -1;
  std::vector<int> measured_amax = {};
  std::vector<Guard> guards = {};  // it runs only if all hold
  // The queue beside the provider's own in which the step runs.
  std::optional<Side> side = {};
  // Whether its call may run there while later steps run; the first step of the
  // call says so.
  bool beside = false;
  // How many such calls of each queue, from the plan's first, are done before
  // this step and the steps launched with it run.
  std::array<size_t, kSides> awaits = {};

  size_t& AwaitsOf(Side queue) { return awaits[IndexOf(queue)]; }
  size_t AwaitsOf(Side queue) const { return awaits[IndexOf(queue)]; }
};

// A copy of bytes from one slot to another of the same size.
struct Copy {
  int from, to;
};

// A block of the arena and the steps during which it holds `value`: from
// `first` (-1: before the first) to `last` (the number of steps: after the
// last), both included. A result that takes an operand's place begins at the
// step at which the operand ends, at the same offset. Steps that run together
// count as the first of them.
struct Tenant {
  const Value* value;  // not a view; of the graph, or a workspace
  size_t at, bytes;
  int first, last;
};

struct Plan {
  std::vector<Slot> slots;
  std::vector<Copy> before;  // before all steps: old state that is read later
  std::vector<Step> steps;
  std::vector<Copy> after;  // after all steps: state not written in place

  std::vector<const Value*> feeds;      // graph inputs that something reads
  std::vector<const Value*> constants;  // initializers that are not state
  std::vector<const Value*> states;     // initializers with a role, or bound
  std::vector<bool> bound;              // states[i] gets a new value
  std::vector<const Value*> fetched;    // one per buffer
  std::vector<std::pair<const Value*, int>> outputs;  // graph outputs → slot

  std::vector<Tenant> tenants;  // of the arena, except empty ones
  std::vector<std::shared_ptr<const Value>> workspaces;

  size_t amaxes = 0;
  // Steps before this one leave all state unchanged.
  size_t first_write = 0;
  size_t alignment = 0;  // of results in the arena
  size_t arena_bytes = 0;
  size_t live_bytes = 0;   // most bytes of arena results alive at one step
  size_t naive_bytes = 0;  // arena size if each result had its own memory
};

// `device`: the place of the provider's memory. `queue`: the provider's; null:
// there is no device, and workspaces are forecasts. REQUIRES: `graph` does not
// change while the plan is in use. Errors: a value whose dtype or shape is not
// known; ops without kernel, all in one message; a cycle of nodes; a view of
// another size than its input; a binding whose sides do not fit; if `device` is
// not the host, an operand of a kernel's host_inputs that is not a constant.
Plan MakePlan(const Graph& graph, const KernelRegistry& kernels,
              Device device = Device::kHost, void* queue = nullptr);

// Runs the plan on paper: every operand must still hold the right value when it
// is read, and after the step every state must hold its next value. Errors: the
// first operand that does not. For tests and debug builds.
void CheckPlan(const Plan& plan, const Graph& graph,
               const KernelRegistry& kernels);

// Steps and values of a plan are numbered by int; -1: none.
inline size_t Index(int i) { return static_cast<size_t>(i); }

}  // namespace onnx_fp8
