// SPDX-License-Identifier: Apache-2.0
#include "providers/run/executor.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "base/check.h"
#include "base/joined.h"
#include "collectives/agreement.h"
#include "collectives/ring_cost.h"
#include "graph/node_cost.h"
#include "graph/op_facts.h"
#include "graph/print.h"
#include "providers/node_profile.h"

namespace onnx_fp8 {
namespace {

using Clock = Profiler::Clock;

double Seconds(Clock::duration time) {
  return std::chrono::duration<double>(time).count();
}

std::string TypeText(const Tensor& t) {
  return Name(t.dtype()) + ToString(t.shape());
}

void CheckType(const char* what, const Value& value, const Tensor& tensor) {
  if (tensor.dtype() == StoredAs(value) && tensor.shape() == value.shape) {
    return;
  }
  const bool kept_otherwise =
      value.role == Role::kMoment && tensor.dtype() != value.dtype;
  Fail("[", what, " ", value.name, "] expected ", TypeText(value), ", got ",
       TypeText(tensor),
       kept_otherwise ? ": a run goes on with the `moments` it began with, and "
                        "with fp8 on a `mesh` that cuts the same blocks"
                      : "");
}

// Calls `allocate`, and adds to its errors how much memory the plan needs.
template <typename F>
auto Allocated(const Plan& plan, F allocate) {
  try {
    return allocate();
  } catch (const Error& error) {
    size_t state = 0;
    for (const Value* value : plan.states) state += BytesOf(*value);
    Fail(error.what(), "; the plan needs ", plan.arena_bytes,
         " bytes for results and ", state, " for state");
  }
}

bool IsFeed(const Value& value) {
  return value.is_input &&
         !(value.is_initializer() && value.role != Role::kNone);
}

// Whether an error's text names one of the nodes.
bool Names(const std::string& text, std::span<const Step> steps) {
  return std::ranges::any_of(steps, [&](const Step& step) {
    return text.find(step.node->Where()) != std::string::npos;
  });
}

// "AdamW optimizer.a, and 3 more"
std::string WhereOf(std::span<const Step> steps) {
  std::string where = steps[0].node->Where();
  return steps.size() == 1 ? where
                           : Concat(where, ", and ", steps.size() - 1, " more");
}

// "y: float[2] = AllReduce<…>". Ranks may call operands by other names: a
// constant's name is its value.
std::string WithoutOperands(const Node& collective) {
  std::string text = Print(collective);
  return text.substr(0, text.rfind(">(") + 1);
}

// Marks a range of the host's time around the kernels of some steps. The first
// step's role and node name it.
class HostRange {
 public:
  HostRange(HostRanges* ranges, std::span<const Step> steps) : ranges_(ranges) {
    if (!ranges_) return;
    ranges_->Push(Concat(RoleOf(*steps[0].node), ": ", WhereOf(steps)));
  }
  ~HostRange() {
    if (ranges_) ranges_->Pop();
  }

 private:
  HostRanges* ranges_;
};

// Steps that ran together share their time as they share their bytes.
void AddTimes(std::span<const Step> steps, Clock::time_point begin,
              Clock::time_point end, Lane lane, Profiler& profiler) {
  double left = 0;
  for (const Step& step : steps) left += CostOf(*step.node).bytes;
  for (const Step& step : steps) {
    double share = CostOf(*step.node).bytes;
    bool rest = share >= left;
    auto until = rest ? end
                      : begin + std::chrono::duration_cast<Clock::duration>(
                                    (end - begin) * (share / left));
    profiler.Add(*step.node, begin, until, lane);
    begin = until;
    left -= share;
  }
}

int64_t BytesOfElement(const Value& value) {
  return static_cast<int64_t>(ByteSize(StoredAs(value)));
}

Lane LaneOf(Side side) {
  return side == Side::kCollectives ? Lane::kBeside : Lane::kUpdates;
}

// Bytes that a rank receives in a Run of the plan, for each group, by
// ReceivedBytes: for providers that do not send through a Communicator.
// Broadcasts, which no training step has, do not count.
std::map<std::string, WireBytes> WireBytesOf(const Plan& plan) {
  std::map<std::string, WireBytes> all;
  for (size_t i = 0; i < plan.steps.size(); i += plan.steps[i].together) {
    if (!IsCollective(*plan.steps[i].node)) continue;
    const Node& node = *plan.steps[i].node;
    // The elements of all operands of the call. A gather counts their bytes.
    const bool gathers = FactsOf(node).collective == Collective::kAllGather;
    int64_t count = 0, element = gathers ? 1 : BytesOfElement(*node.in(0));
    for (size_t j = i; j < i + plan.steps[i].together; ++j) {
      const Value& x = *plan.steps[j].node->in(0);
      count += NumElements(*x.shape) * (gathers ? BytesOfElement(x) : 1);
    }
    const int64_t received =
        ReceivedBytes(node.op, count, element, node.Int("ranks", 1));
    WireBytes& bytes = all[node.String("group", "")];
    switch (FactsOf(node).collective) {
      case Collective::kAllReduce:
        bytes.all_reduce += received;
        break;
      case Collective::kAllGather:
        bytes.all_gather += received;
        break;
      case Collective::kReduceScatter:
        bytes.reduce_scatter += received;
        break;
      default:
        break;
    }
  }
  return all;
}

}  // namespace

Executor::Executor(std::shared_ptr<const Graph> graph,
                   ExecutionProvider& provider,
                   std::shared_ptr<SharedArena> arena)
    : graph_(std::move(graph)),
      provider_(provider),
      plan_(MakePlan(*graph_, provider.Kernels(), provider.device(),
                     provider.queue())),
      arena_(arena ? std::move(arena)
                   : std::make_shared<SharedArena>(provider)),
      users_(plan_.slots.size()) {
  for (size_t i = 0; i < plan_.steps.size(); i += plan_.steps[i].together) {
    const std::span<const Step> steps(&plan_.steps[i], plan_.steps[i].together);
    for (const Step& step : steps) {
      for (const std::vector<int>* operands : {&step.inputs, &step.outputs}) {
        for (int slot : *operands) {
          if (slot < 0) continue;
          users_[static_cast<size_t>(slot)].push_back(calls_.size());
        }
      }
    }
    Call& call = calls_.emplace_back();
    call.steps = steps;
    call.operands.resize(steps.size());
  }
}

// All memory that stays from Run to Run.
void Executor::TakeMemory() {
  Allocated(plan_, [&] {
    if (slots_.empty()) TakeOwn();
    arena_->Reserve(plan_.arena_bytes);
  });
}

void Executor::TakeOwn() {
  if (plan_.amaxes > 0) {
    auto bytes = static_cast<int64_t>(plan_.amaxes * sizeof(AmaxCell));
    amaxes_ = provider_.NewTensor(DType::kUInt8, {bytes});
  }
  bool draws = std::ranges::any_of(plan_.steps, [&](const Step& step) {
    return provider_.Kernels()
        .Find(step.node->domain, step.node->op)
        ->traits.draws;
  });
  if (draws && provider_.device() != Device::kHost) {
    draw_on_device_ = provider_.NewTensor(DType::kUInt64, {});
  }
  std::vector<Tensor> constants(plan_.constants.size());
  std::vector<Tensor> slots(plan_.slots.size());
  for (size_t i = 0; i < slots.size(); ++i) {
    const Slot& slot = plan_.slots[i];
    if (slot.place != SlotPlace::kConstant && slot.place != SlotPlace::kHost)
      continue;
    const Tensor& host = plan_.constants[slot.at]->data;
    Tensor& ours = constants[slot.at];
    if (slot.place == SlotPlace::kConstant && !ours.defined()) {
      ours = provider_.ToOurs(host);
    }
    slots[i] = (slot.place == SlotPlace::kHost ? host : ours)
                   .Reshaped(*slot.value->shape);
  }
  slots_ = std::move(slots);
}

struct Executor::AtEnd {
  Executor& executor;
  ~AtEnd() {
    for (Side queue : kAllSides) {
      InFlight& beside = executor.beside_[IndexOf(queue)];
      if (!beside.calls.empty()) executor.provider_.side_queue(queue)->Drop();
      beside = {};
    }
    for (auto* taken :
         {&executor.feeds_, &executor.states_, &executor.fetched_}) {
      taken->clear();
    }
    executor.works_.reset();
  }
};

TensorMap Executor::Run(const TensorMap& feeds, TensorMap& state,
                        uint64_t draw) {
  Check(!state.contains(kHalfUpdated),
        "expected state that is whole, got state that an earlier error left "
        "half updated: restore it first");
  AtEnd at_end{*this};
  draw_ = draw;
  TakeMemory();
  if (draw_on_device_.defined()) {
    provider_.CopyIn(Tensor::Scalar(draw), draw_on_device_);
  }
  TakeFeeds(feeds);
  TakeState(state);
  CheckAliases();
  if (!compared_) CompareCollectives();
  TakeFetched();
  BindSlots();
  if (observer_) observer_->Begin(*graph_, provider_);
  if (Records()) {
    RunOrReplay(state);
  } else {
    RunSteps(state);
  }
  if (observer_) observer_->End(*graph_);
  CountTransfers();
  return Outputs();
}

void Executor::RunInto(std::span<const Tensor> feeds, std::span<Tensor> results,
                       uint64_t draw) {
  AtEnd at_end{*this};
  draw_ = draw;
  TakeMemory();
  if (feed_inputs_.empty()) {
    for (const Value* value : plan_.feeds) {
      auto it = std::ranges::find(graph_->inputs, value);
      feed_inputs_.push_back(static_cast<size_t>(it - graph_->inputs.begin()));
    }
  }
  for (size_t i = 0; i < plan_.feeds.size(); ++i) {
    const Tensor& feed = feeds[feed_inputs_[i]];
    CheckType("input", *plan_.feeds[i], feed);
    feeds_.push_back(feed);
  }
  TakeResults(feeds, results);
  BindSlots();
  TensorMap no_state;
  RunSteps(no_state);
  for (size_t i = 0; i < results.size(); ++i) {
    const Tensor& slot = slots_[static_cast<size_t>(plan_.outputs[i].second)];
    if (slot.raw() != results[i].raw()) provider_.Copy(slot, results[i]);
  }
}

// Several outputs may be views of one buffer: the first gives its memory.
void Executor::TakeResults(std::span<const Tensor> feeds,
                           std::span<const Tensor> results) {
  fetched_.resize(plan_.fetched.size());
  for (size_t i = 0; i < results.size(); ++i) {
    auto [value, at] = plan_.outputs[i];
    CheckType("output", *value, results[i]);
    const Slot& slot = plan_.slots[static_cast<size_t>(at)];
    bool fed = std::ranges::any_of(feeds, [&](const Tensor& feed) {
      return feed.SharesDataWith(results[i]);
    });
    if (slot.place != SlotPlace::kFetched || fed) continue;
    Tensor& buffer = fetched_[slot.at];
    if (!buffer.defined()) buffer = results[i];
  }
  for (size_t i = 0; i < fetched_.size(); ++i) {
    if (fetched_[i].defined()) continue;
    const Value& value = *plan_.fetched[i];
    fetched_[i] = provider_.NewTensor(StoredAs(value), *value.shape);
  }
}

// A Communicator counts what it sends for a provider on the host.
void Executor::CountTransfers() {
  if (!groups_ || provider_.device() == Device::kHost) return;
  if (!wire_bytes_) wire_bytes_ = WireBytesOf(plan_);
  for (const auto& [name, group] : *groups_) {
    group->AddWireBytes((*wire_bytes_)[name]);
  }
}

// Ranks that ran other collectives, or in another order, would wait for each
// other forever, or take each other's data for their own. Only the ranks of one
// group need to agree: data ranks with fewer samples may divide tokens in
// another way.
void Executor::CompareCollectives() {
  compared_ = true;
  if (!groups_) return;
  std::map<std::string, std::vector<std::string>> lines;
  for (const Step& step : plan_.steps) {
    if (!IsCollective(*step.node)) continue;
    std::string line = WithoutOperands(*step.node);
    if (step.together > 1) {
      line += Concat(", in one call with ", step.together - 1, " more");
    }
    lines[step.node->String("group", "")].push_back(std::move(line));
  }
  if (!lines.empty()) {
    for (const auto& [name, group] : *groups_) {
      CheckAgreement(*group, "collectives of the plan", lines[name]);
    }
  }
}

void Executor::RunSteps(TensorMap& state) {
  if (amaxes_.defined()) provider_.Clear(amaxes_);
  RunCopies(plan_.before);
  NoteWork({}, Lane::kHost);
  size_t begun = 0;  // steps
  try {
    for (Call& call : calls_) {
      const Step& step = call.steps[0];
      for (Side queue : kAllSides) {
        Await(queue, step.AwaitsOf(queue));
      }
      begun += step.together;
      if (RunsBeside(step)) {
        StartBeside(call);
      } else if (IsNeeded(step)) {
        RunCall(call);
      }
    }
    AwaitAll();
    if (provider_.device() == Device::kHost) provider_.Synchronize();
  } catch (const Error& error) {
    bool whole =
        plan_.first_write == plan_.steps.size() || begun <= plan_.first_write;
    if (whole) throw;
    state[kHalfUpdated] = Tensor::Scalar(true);
    Fail(error.what(), "; state is half updated by now and must be restored");
  }
  RunCopies(plan_.after);
  NoteWork({}, Lane::kHost);
}

// ---- recording

// A profiler times each kernel, and an observer reads its results.
bool Executor::Records() const {
  return provider_.CanRecord() && !profiler_ && !observer_;
}

// All that a Run uses and another Run may find elsewhere.
std::vector<const void*> Executor::Addresses() const {
  std::vector<const void*> addresses = {arena_->data()};
  for (const auto* taken : {&feeds_, &states_}) {
    for (const Tensor& tensor : *taken) addresses.push_back(tensor.raw());
  }
  return addresses;
}

// The first Run at some addresses is not recorded: its kernels may allocate.
void Executor::RunOrReplay(TensorMap& state) {
  std::vector<const void*> addresses = Addresses();
  if (addresses != recorded_) {
    recording_ = nullptr;
    RunSteps(state);
    recorded_ = std::move(addresses);
    return;
  }
  if (!recording_) {
    if (timeline_) works_.emplace();
    noted_ = {};
    recording_ = provider_.Record([&] { RunSteps(state); });
    if (timeline_) in_timeline_ = timeline_->AddRecording(*std::move(works_));
  }
  if (timeline_) timeline_->AddReplay(in_timeline_);
  recording_->Replay();
}

void Executor::NoteWork(std::span<const Step> steps, Lane lane) {
  if (!works_) return;
  const WorkCounts now = provider_.Recorded();
  RecordedWork work{.nodes = {}, .lane = lane, .counts = {}};
  for (size_t i = 0; i < now.of.size(); ++i) {
    work.counts.of[i] = now.of[i] - noted_.of[i];
  }
  noted_ = now;
  if (work.counts == WorkCounts{}) return;
  for (const Step& step : steps) work.nodes.push_back(step.node);
  works_->push_back(std::move(work));
}

// A provider that records finds feeds of the host in the same memory each time.
Tensor Executor::Fed(size_t i, const Tensor& feed) {
  if (!Records() || !feed.on_host()) return provider_.ToOurs(feed);
  own_feeds_.resize(plan_.feeds.size());
  Tensor& own = own_feeds_[i];
  if (!own.defined() || own.shape() != feed.shape()) {
    own = provider_.NewTensor(feed.dtype(), feed.shape());
  }
  provider_.CopyIn(feed, own);
  return own;
}

void Executor::TakeFetched() {
  const bool keeps = Records() || reuses_outputs_;
  if (keeps && !own_fetched_.empty()) {
    fetched_ = own_fetched_;
    return;
  }
  for (const Value* value : plan_.fetched) {
    fetched_.push_back(provider_.NewTensor(StoredAs(*value), *value->shape));
  }
  if (keeps) own_fetched_ = fetched_;
}

// The next Run writes the caller's results only if it reuses them.
TensorMap Executor::Outputs() {
  const bool copies = Records() && !reuses_outputs_;
  if (copies) {
    for (size_t i = 0; i < fetched_.size(); ++i) {
      fetched_[i] = provider_.Clone(own_fetched_[i]);
    }
  }
  TensorMap outputs;
  for (auto [value, at] : plan_.outputs) {
    const Slot& slot = plan_.slots[static_cast<size_t>(at)];
    const Tensor* taken = Taken(slot);
    Tensor& output = outputs[value->name];
    output = taken ? taken->Reshaped(*slot.value->shape)
                   : slots_[static_cast<size_t>(at)];
    if (copies && slot.place == SlotPlace::kFeed) {
      output = provider_.Clone(output);
    }
  }
  return outputs;
}

void Executor::TakeFeeds(const TensorMap& feeds) {
  for (const auto& [name, tensor] : feeds) {
    const Value* value = graph_->Find(name);
    if (!value || !IsFeed(*value)) {
      std::vector<std::string> names;
      for (const Value* input : graph_->inputs) {
        if (IsFeed(*input)) names.push_back(input->name);
      }
      Fail("[feed ", name, "] expected the name of an input (", Joined(names),
           ")");
    }
    if (value->concrete()) CheckType("input", *value, tensor);
  }
  for (const Value* value : plan_.feeds) {
    auto it = feeds.find(value->name);
    Check(it != feeds.end() || value->is_initializer(), "[input ", value->name,
          "] expected ", TypeText(*value), ", got no feed");
    feeds_.push_back(
        Fed(feeds_.size(), it != feeds.end() ? it->second : value->data));
  }
}

void Executor::TakeState(TensorMap& state) {
  for (const Value* value : plan_.states) {
    auto it = state.find(value->name);
    if (it == state.end()) continue;
    CheckType("state", *value, it->second);
    Check(it->second.device() == provider_.device(), "[state ", value->name,
          "] expected memory of the provider ", provider_.Name());
  }
  for (size_t i = 0; i < plan_.states.size(); ++i) {
    const Value& value = *plan_.states[i];
    auto it = state.find(value.name);
    if (!plan_.bound[i]) {
      states_.push_back(it != state.end() ? it->second
                                          : provider_.ToOurs(value.data));
      continue;
    }
    if (it == state.end()) {
      Tensor own =
          Allocated(plan_, [&] { return provider_.Clone(value.data); });
      it = state.emplace(value.name, std::move(own)).first;
    }
    states_.push_back(it->second);
  }
}

void Executor::CheckAliases() const {
  std::unordered_map<const void*, const Value*> written;
  for (size_t i = 0; i < states_.size(); ++i) {
    if (!plan_.bound[i] || states_[i].bytes() == 0) continue;
    auto [it, added] = written.emplace(states_[i].raw(), plan_.states[i]);
    Check(added, "[state ", plan_.states[i]->name,
          "] expected memory of its own, got that of ", it->second->name);
  }
  auto check = [&](const char* what, const Value& value, const Tensor& t) {
    auto it = written.find(t.raw());
    Check(t.bytes() == 0 || it == written.end(), "[", what, " ", value.name,
          "] expected memory of its own, got that of a state that the step "
          "writes");
  };
  for (size_t i = 0; i < states_.size(); ++i) {
    if (!plan_.bound[i]) check("state", *plan_.states[i], states_[i]);
  }
  for (size_t i = 0; i < feeds_.size(); ++i) {
    check("input", *plan_.feeds[i], feeds_[i]);
  }
}

// The memory of a slot that the caller gives or gets; null for others.
const Tensor* Executor::Taken(const Slot& slot) const {
  switch (slot.place) {
    case SlotPlace::kFeed:
      return &feeds_[slot.at];
    case SlotPlace::kState:
      return &states_[slot.at];
    case SlotPlace::kFetched:
      return &fetched_[slot.at];
    default:
      return nullptr;
  }
}

// Slots move if the caller passes other memory, or another executor has grown
// the arena. Only the calls that use such a slot bind their operands again.
void Executor::BindSlots() {
  auto* arena = static_cast<char*>(arena_->data());
  for (size_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = plan_.slots[i];
    const Tensor* taken = Taken(slot);
    if (!taken && slot.place != SlotPlace::kArena) continue;
    void* data = taken ? const_cast<void*>(taken->raw()) : arena + slot.at;
    if (slots_[i].defined() && slots_[i].raw() == data) continue;
    slots_[i] =
        Tensor::View(taken ? taken->dtype() : StoredAs(*slot.value),
                     *slot.value->shape, nullptr, data, provider_.device());
    for (size_t call : users_[i]) calls_[call].bound = false;
  }
}

bool Executor::IsNeeded(const Step& step) const {
  return std::ranges::all_of(step.guards, [this](const Guard& guard) {
    const Tensor& flag = slots_[static_cast<size_t>(guard.slot)];
    return flag.data<bool>()[0] == guard.value;
  });
}

void Executor::BindOperands(Call& call) {
  auto bind = [&](const std::vector<int>& from, std::vector<Tensor>& to) {
    to.resize(from.size());
    std::ranges::transform(from, to.begin(), [&](int slot) {
      return slot < 0 ? Tensor() : slots_[static_cast<size_t>(slot)];
    });
  };
  for (size_t k = 0; k < call.steps.size(); ++k) {
    const Step& step = call.steps[k];
    Operands& o = call.operands[k];
    bind(step.inputs, o.inputs);
    bind(step.outputs, o.outputs);
    o.measured.clear();
    for (int i : step.measured_amax) o.measured.push_back(AmaxAt(i));
  }
  call.bound = true;
}

void Executor::MakeContexts(Call& call, void* queue) {
  if (!call.bound) BindOperands(call);
  call.contexts.clear();
  for (size_t k = 0; k < call.steps.size(); ++k) {
    const Step& step = call.steps[k];
    Operands& o = call.operands[k];
    KernelContext& context =
        call.contexts.emplace_back(*step.node, o.inputs, o.outputs, draw_);
    context.SetAmaxes(AmaxAt(step.known_amax), o.measured,
                      AmaxAt(step.own_amax));
    context.set_queue(queue);
    if (step.workspace >= 0) {
      context.set_workspace(slots_[static_cast<size_t>(step.workspace)]);
    }
    context.set_groups(groups_);
    context.set_draw_on_device(
        static_cast<const uint64_t*>(draw_on_device_.raw()));
  }
}

// Errors name the node, whether the kernel did or not.
void Executor::RunKernels(Call& call) const {
  const bool timed = profiler_ || times_;
  if (timed) call.begin = Clock::now();
  HostRange range(provider_.host_ranges(), call.steps);
  try {
    if (call.steps.size() > 1) {
      call.steps[0].many(call.contexts);
    } else {
      call.steps[0].kernel(call.contexts[0]);
    }
    if (profiler_) provider_.Synchronize();
  } catch (const std::exception& error) {
    call.bound = false;  // the kernel may have replaced a result
    std::string text = error.what();
    if (dynamic_cast<const Error*>(&error) && Names(text, call.steps)) throw;
    Fail("[", WhereOf(call.steps), "] ", text);
  }
  if (timed) call.end = Clock::now();
}

// A kernel must leave its results in the memory that the plan gave it.
void Executor::Conclude(Call& call) {
  if (profiler_) {
    AddTimes(call.steps, call.begin, call.end, call.lane, *profiler_);
  }
  for (size_t k = 0; k < call.steps.size(); ++k) {
    const Step& step = call.steps[k];
    const std::vector<Tensor>& outputs = call.operands[k].outputs;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (step.outputs[i] < 0) continue;
      const Tensor& slot = slots_[static_cast<size_t>(step.outputs[i])];
      if (outputs[i].raw() == slot.raw()) continue;
      call.bound = false;
      Fail("[", step.node->Where(), "] its kernel put output ", i,
           " into memory that is not the plan's");
    }
  }
}

void Executor::TellBefore(const Call& call) const {
  if (!observer_) return;
  for (size_t k = 0; k < call.steps.size(); ++k) {
    observer_->Before(*call.steps[k].node, call.operands[k].inputs);
  }
}

void Executor::TellAfter(const Call& call) const {
  if (!observer_) return;
  for (size_t k = 0; k < call.steps.size(); ++k) {
    observer_->After(*call.steps[k].node, call.operands[k].outputs);
  }
}

void Executor::RunCall(Call& call) {
  call.lane = Lane::kHost;
  MakeContexts(call, provider_.queue());
  TellBefore(call);
  RunKernels(call);
  TellAfter(call);
  NoteWork(call.steps, Lane::kHost);
  if (IsCollective(*call.steps[0].node)) {
    AddTransfer(call, call.end - call.begin);
  }
  Conclude(call);
}

// ---- calls beside other steps

// On a device every call runs in its side queue, even one that is awaited at
// once, because groups of ranks belong to a queue. A profiler and an observer
// wait for each kernel, so nothing runs beside it.
bool Executor::RunsBeside(const Step& step) const {
  if (!overlap_ || observer_ || !step.side) return false;
  const bool device = provider_.device() != Device::kHost;
  return (device ? !profiler_ : step.beside) &&
         provider_.side_queue(*step.side);
}

void Executor::StartBeside(Call& call) {
  const Step& first = call.steps[0];
  SideQueue& side = *provider_.side_queue(*first.side);
  InFlight& beside = beside_[IndexOf(*first.side)];
  beside.calls.push_back(&call);
  call.lane = LaneOf(*first.side);
  MakeContexts(call, side.queue());
  side.Start([this, &call] {
    RunKernels(call);
    NoteWork(call.steps, call.lane);
  });
  if (first.beside) return;
  Await(*first.side, beside.awaited + 1);
  --beside.awaited;  // the plan counts only those beside other steps
}

void Executor::Await(Side queue, size_t count) {
  InFlight& beside = beside_[IndexOf(queue)];
  for (; beside.awaited < count && !beside.calls.empty(); ++beside.awaited) {
    Call& call = *beside.calls.front();
    const Clock::time_point begin = Clock::now();
    provider_.side_queue(queue)->Await();
    if (queue == Side::kCollectives) AddTransfer(call, Clock::now() - begin);
    Conclude(call);
    beside.calls.pop_front();
  }
}

void Executor::AwaitAll() {
  for (Side queue : kAllSides) {
    const InFlight& beside = beside_[IndexOf(queue)];
    Await(queue, beside.awaited + beside.calls.size());
  }
}

void Executor::AddTransfer(const Call& call, Clock::duration waited) {
  if (profiler_) profiler_->AddTransfer(call.end - call.begin, waited);
  if (!times_) return;
  times_->all += Seconds(call.end - call.begin);
  times_->exposed += Seconds(waited);
}

void Executor::RunCopies(const std::vector<Copy>& copies) {
  for (const Copy& copy : copies) {
    provider_.Copy(slots_[static_cast<size_t>(copy.from)],
                   slots_[static_cast<size_t>(copy.to)]);
  }
}

}  // namespace onnx_fp8
