// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "graph/graph.h"
#include "onnx_fp8/profile_report.h"
#include "providers/plan/plan.h"
#include "providers/provider.h"
#include "providers/run/device_timeline.h"
#include "providers/run/node_observer.h"
#include "providers/run/profile.h"

namespace onnx_fp8 {

// Memory for intermediate results that several executors share. It is as large
// as their largest plan needs. It keeps no data between two runs. REQUIRES: two
// of the executors never run at the same time.
class SharedArena {
 public:
  // `provider` must outlive it.
  explicit SharedArena(ExecutionProvider& provider) : provider_(provider) {}

  // Makes it at least so large; data() may change. Not while an executor runs.
  // Errors: out of memory.
  void Reserve(size_t bytes) {
    if (data_ && bytes <= bytes_) return;
    data_.reset();  // first, so that both need not fit side by side
    data_ = provider_.Allocate(bytes);
    bytes_ = bytes;
  }

  // Gives the memory back; the next Reserve takes new memory. Not while an
  // executor runs.
  void Release() {
    data_.reset();
    bytes_ = 0;
  }

  void* data() const { return data_.get(); }
  size_t bytes() const { return bytes_; }

 private:
  ExecutionProvider& provider_;
  std::shared_ptr<void> data_;
  size_t bytes_ = 0;
};

// Name of the entry that Run leaves in a state map if it could update only a
// part of it. No value of a graph has this name.
inline constexpr char kHalfUpdated[] = "";

// Runs one graph of concrete shapes; REQUIRES that the provider outlives it.
//
// State lives with the caller, so that several executors (micro and apply,
// other shapes) share it. Initializers with a role, and initializers bound by
// Graph::state, are state. Run reads their entries and updates bound entries in
// place. A bound initializer without an entry gets a clone of its data as
// entry; an unbound one is then read from the graph. Entries of other names are
// left alone. Nothing is ever written into the graph.
//
// The same graph, feeds, state, draw and thread count give the same bits.
class Executor {
 public:
  // Makes the plan. The first Run takes its memory. Results lie in `arena`,
  // which other executors of the provider may use while this one does not run;
  // null: in an arena of its own. Errors: as MakePlan's.
  Executor(std::shared_ptr<const Graph> graph, ExecutionProvider& provider,
           std::shared_ptr<SharedArena> arena = nullptr);

  // `feeds` by name of graph input, on the host or in the provider's memory,
  // where kernels read them in place. A provider that records repeats a
  // recording only while they lie in the same place. An input with an
  // initializer (a default) and one that nothing reads may be missing. The
  // outputs, by name, are new memory of the provider at every call, unless
  // set_reuses_outputs; outputs that are views of each other share it. Feeds
  // and outputs have the dtype in which the graph keeps them (StoredAs). A
  // provider with a queue may still be computing the outputs.
  //
  // Nodes that draw random values (Dropout) draw others for each number `draw`.
  //
  // Errors: feeds or state of another name, dtype or shape than the graph's; a
  // bound state entry that shares its bytes with a feed or another entry
  // (found by their first byte); errors of kernels, naming the node; out of
  // memory.
  // After an error state is as it was, unless the message says that it is half
  // updated: then a kernel failed after another one had written its state in
  // place. All Runs refuse such a state (it holds an entry kHalfUpdated) until
  // the caller has restored it. If updates depend on all gradients, as in
  // optimizer steps with clipping or a check for finite values, no kernel that
  // reads data runs after the first update. A provider with a queue reports
  // errors of its kernels at the next call that waits for them.
  TensorMap Run(const TensorMap& feeds, TensorMap& state, uint64_t draw = 0);

  // The same for a caller who knows positions and has memory for the results:
  // feeds[i] belongs to graph->inputs[i], results[i] receives
  // graph->outputs[i]. Kernels write their results there; only outputs that are
  // not results of kernels, and results that share their first byte with a
  // feed, are copied. REQUIRES: a graph without state, on a provider with
  // memory of the host. Errors: as Run's, and a result of another dtype or
  // shape.
  void RunInto(std::span<const Tensor> feeds, std::span<Tensor> results,
               uint64_t draw = 0);

  const Plan& plan() const { return plan_; }
  // The groups of ranks that collectives name; null: none. They must outlive
  // the Runs. All ranks must Run the same plans in the same order.
  void set_groups(const Groups* groups) { groups_ = groups; }
  // The ranks compare the collectives of their plans; the first Run does so if
  // nobody has. Errors: the first node that differs.
  void CompareCollectives();
  // Whether each Run writes its outputs into the memory of the last Run's.
  void set_reuses_outputs(bool reuses) { reuses_outputs_ = reuses; }
  // Null: no times are measured. It must outlive the Runs.
  void set_profiler(Profiler* profiler) { profiler_ = profiler; }
  // The executor tells the timeline which nodes added the work of a Recording;
  // null: there is no timeline. The timeline must outlive the Runs, and the
  // graph must outlive the timeline.
  void set_timeline(DeviceTimeline* timeline) { timeline_ = timeline; }
  // Whether collectives and updates of state in the host's memory run beside
  // other steps, if the provider can do so.
  void set_overlap(bool overlap) { overlap_ = overlap; }
  // In seconds, added up; null: they are not measured. It must outlive the
  // Runs.
  void set_transfer_times(TransferTimes* times) { times_ = times; }
  // Null: nobody watches the nodes. It must outlive the Runs.
  void set_observer(NodeObserver* observer) { observer_ = observer; }

 private:
  void TakeMemory();
  void TakeOwn();
  Tensor Fed(size_t i, const Tensor& feed);
  void TakeFeeds(const TensorMap& feeds);
  void TakeState(TensorMap& state);
  void TakeFetched();
  void TakeResults(std::span<const Tensor> feeds, std::span<const Tensor>);
  void CheckAliases() const;
  const Tensor* Taken(const Slot& slot) const;
  void BindSlots();
  // Steps that run together, or one, with what their kernels find.
  struct Call;
  void BindOperands(Call& call);
  struct AtEnd;  // of a Run, whether or not it fails
  bool IsNeeded(const Step& step) const;
  void MakeContexts(Call& call, void* queue);
  void RunKernels(Call& call) const;
  // Tells the observer of the call's operands, or of its results.
  void TellBefore(const Call& call) const;
  void TellAfter(const Call& call) const;
  void Conclude(Call& call);
  void RunCall(Call& call);
  bool RunsBeside(const Step& step) const;
  void StartBeside(Call& call);
  // Waits for the first `count` of the queue's calls that run beside other
  // steps.
  void Await(Side queue, size_t count);
  void AwaitAll();
  // The host waited for the call's collectives.
  void AddTransfer(const Call& call, Profiler::Clock::duration waited);
  void RunSteps(TensorMap& state);
  bool Records() const;
  // The work that was added since the last call belongs to these steps.
  void NoteWork(std::span<const Step> steps, Lane lane);
  void RunOrReplay(TensorMap& state);
  std::vector<const void*> Addresses() const;
  TensorMap Outputs();
  AmaxCell* AmaxAt(int i) {
    return i < 0 ? nullptr : static_cast<AmaxCell*>(amaxes_.raw()) + i;
  }
  void RunCopies(const std::vector<Copy>& copies);
  void CountTransfers();

  std::shared_ptr<const Graph> graph_;
  ExecutionProvider& provider_;
  Plan plan_;
  std::shared_ptr<SharedArena> arena_;
  // One per slot of the plan, at the address that it had in the last Run. Only
  // the tensors of constants keep their memory alive.
  std::vector<Tensor> slots_;
  // If the provider records: the steps of a Run, and the addresses of arena,
  // feeds and state that they use. Feeds of the host and results then have
  // memory of their own.
  std::unique_ptr<Recording> recording_;
  std::vector<const void*> recorded_;  // or of the last Run
  DeviceTimeline* timeline_ = nullptr;
  size_t in_timeline_ = 0;                          // the recording's number
  std::optional<std::vector<RecordedWork>> works_;  // while it is recorded
  WorkCounts noted_;                                // sums of works_
  std::vector<Tensor> own_feeds_, own_fetched_;
  std::vector<size_t> feed_inputs_;  // by feed of the plan: which graph input
  std::optional<std::map<std::string, WireBytes>> wire_bytes_;  // of a Run
  // Only during a Run: nothing of the caller's is kept.
  std::vector<Tensor> feeds_, states_, fetched_;
  struct Operands {
    std::vector<Tensor> inputs, outputs;
    std::vector<AmaxCell*> measured;
  };
  struct Call {
    std::span<const Step> steps;
    bool bound = false;              // `operands` have the slots' addresses
    std::vector<Operands> operands;  // one per step, as the contexts
    std::vector<KernelContext> contexts;
    Profiler::Clock::time_point begin, end;
    Lane lane = Lane::kHost;
  };
  std::vector<Call> calls_;                 // all of the plan, in its order
  std::vector<std::vector<size_t>> users_;  // by slot: calls with that operand
  // Calls in one queue beside the provider's that are not awaited yet, and the
  // number of others in this Run.
  struct InFlight {
    std::deque<Call*> calls;
    size_t awaited = 0;
  };
  std::array<InFlight, kSides> beside_;
  Tensor amaxes_;  // array of AmaxCells
  uint64_t draw_ = 0;
  Tensor draw_on_device_;  // if a kernel of a device draws
  Profiler* profiler_ = nullptr;
  TransferTimes* times_ = nullptr;
  bool overlap_ = true;
  bool reuses_outputs_ = false;
  const Groups* groups_ = nullptr;
  bool compared_ = false;  // the order of collectives
  NodeObserver* observer_ = nullptr;
};

}  // namespace onnx_fp8
