// SPDX-License-Identifier: Apache-2.0
#include "onnx_fp8/session.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/available_memory.h"
#include "base/check.h"
#include "base/mapped_file.h"
#include "onnx_fp8/stats_spec.h"
#include "providers/run/executor.h"
#include "providers/run/state_store.h"
#include "training/make_provider.h"
#include "training/ranks/sharded_state.h"
#include "training/ranks/split_layers.h"
#include "training/session/collective_order.h"
#include "training/session/export_model.h"
#include "training/session/kept_values.h"
#include "training/session/make_session.h"
#include "training/session/plan_cache.h"
#include "training/session/run_layout.h"
#include "training/session/started_steps.h"
#include "training/session/step_results.h"
#include "training/session/step_room.h"
#include "training/state/averages.h"
#include "training/state/checkpoint.h"
#include "training/state/frozen_weights.h"
#include "training/state/masters.h"
#include "training/state/session_state.h"
#include "training/step/adapters.h"
#include "training/step/data_parallel.h"
#include "training/step/fit_memory.h"
#include "training/step/pipelines.h"
#include "training/step/place_state.h"
#include "training/step/read_init.h"
#include "training/step/session_checks.h"
#include "training/step/static_scales.h"
#include "training/step/step_graph.h"
#include "training/step/step_report.h"
#include "training/step/training_model.h"

namespace onnx_fp8 {
namespace {

class Session : public TrainingSession {
 public:
  Session(const SessionOptions& options,
          std::unique_ptr<ExecutionProvider> provider, const MeshRanks* ranks)
      : options_(options),
        provider_(std::move(provider)),
        ranks_(ranks),
        stats_(ParseStats(options.stats)),
        runner_(MakePassRunner(options)),
        model_(LoadSessionModel(&options_, runner_)),
        evaluator_(MakeEvaluator()),
        arena_(std::make_shared<SharedArena>(*provider_)),
        source_(MakeStepSource(options_, model_, *evaluator_, runner_,
                               ranks ? ranks->mesh() : Mesh{},
                               ranks ? ranks->tensor_rank() : 0,
                               ranks ? ranks->shard_rank() : 0)),
        masters_(*model_.graph, model_.step != nullptr, options_.optimizer,
                 source_.frozen_halves),
        averages_(*model_.graph, model_.step != nullptr, options_),
        state_(*provider_,
               StatePlacesOf(options_, provider_->device(), *model_.graph)),
        layout_(model_.graph.get(), &state_),
        order_(ranks),
        sharded_(options.shard, ranks, *model_.graph, source_.sharded),
        plans_(options.max_plans),
        started_(*provider_),
        memory_(provider_->Memory()),
        limit_(StepLimitOf(options, provider_->device(), [&] {
          return memory_ ? memory_->free : AvailableMemory();
        })) {
    CheckOptions(options.provider_options, ranks);
    CheckStats(options, *provider_);
    CheckDump(options, ranks);
    if (ranks && model_.step) RequireOneProcess(*model_.graph, *model_.step);
    TakeOverAll();
    for (const auto& [name, count] : model_.batches) state_.Set(name, count);
    if (!options.timeline.empty()) {
      CheckTimeline(options, *provider_);
      timeline_ = std::make_unique<DeviceTimeline>(*provider_, options.timeline,
                                                   options.timeline_steps);
    }
    bool trace = !options.profile.empty();
    if (!trace && !options.profile_steps) return;
    profiler_ = std::make_unique<Profiler>(trace);
    // A destructor writes it at the end, and can't report an error.
    if (trace) profiler_->WriteChromeTrace(options.profile);
  }

  ~Session() override {
    if (options_.profile.empty()) return;
    try {
      profiler_->WriteChromeTrace(options_.profile);
    } catch (const Error&) {
      // The constructor reported all errors that can be foreseen.
    }
  }

  std::string Prepare(const std::vector<TensorMap>& micro_batches) override {
    CheckCount(micro_batches);
    auto kind = options_.grad_accum > 1 ? StepKind::kMicro : StepKind::kTrain;
    MicroSums sums;
    for (const auto& feeds : micro_batches) {
      sums.Add(Plan(kind, feeds, false).step);
    }
    if (kind == StepKind::kMicro) PlanApply(sums);
    return std::exchange(remark_, "");
  }

  void PrepareEval(const TensorMap& feeds) override {
    Plan(StepKind::kEval, feeds, false);
  }

  void Start(const std::vector<TensorMap>& micro_batches, double lr) override {
    CheckCount(micro_batches);
    CheckRate(lr);
    if (step_done_) UseKeptScales();
    if (profiler_) profiler_->BeginStep();
    if (timeline_) {
      if (timeline_->first_is_next()) Settle();
      timeline_->BeginStep();
    }
    StartedStep started{step_ + 1, std::ssize(micro_batches), "", {}};
    if (options_.grad_accum == 1) {
      PlannedStep& planned = Plan(StepKind::kTrain, micro_batches[0], false);
      RunStep(planned, micro_batches[0], lr, 0, &started);
    } else {
      Accumulate(micro_batches, lr, &started);
    }
    ++step_;
    batches_ += std::ssize(micro_batches);
    step_done_ = true;
    started.remark = std::exchange(remark_, "");
    started_.Add(std::move(started));
    if (profiler_) profiler_->EndStep();
    if (timeline_) timeline_->EndStep();
    if (timeline_ && timeline_->is_complete()) {
      Settle();
      timeline_->Finish();
    }
  }

  StepResult Finish() override {
    if (!started_.has_results()) Settle();
    Check(started_.has_results(), "expected a step that was started, got none");
    return started_.Take();
  }

  EvalResult Eval(const TensorMap& feeds, bool measures) override {
    PlannedStep& planned = Plan(StepKind::kEval, feeds, false, measures);
    EvalResult result =
        EvalResultOf(planned.step, feeds, RunBorrowing(planned, feeds));
    result.of_averages = !planned.key.averages.empty();
    return result;
  }

  GradientResult Gradients(const TensorMap& feeds, bool input_gradients,
                           bool measures) override {
    Check(!sharded_.is_shared(), "[", options_.model,
          "] expected whole state for the gradients of a batch, got parts");
    PlannedStep& planned =
        Plan(StepKind::kGradients, feeds, input_gradients, measures);
    return GradientResultOf(planned.step, feeds, RunBorrowing(planned, feeds));
  }

  // The update in a step file divides by a fixed number of micro-batches,
  // unless it sums over labels.
  bool TakesSmallerGroups() const override {
    return !model_.step || source_.sums_labels;
  }

  void Watch(NodeObserver* observer) override { observer_ = observer; }

  int64_t step() const override { return step_; }
  int64_t skipped_steps() override {
    Settle();
    return counts_.skipped;
  }

  std::vector<InputInfo> Inputs() const override { return model_.Inputs(); }

  LossSpec Loss() const override { return model_.loss; }

  const SessionOptions& Options() const override { return options_; }

  std::vector<ParameterInfo> Parameters() const override {
    return model_.Parameters();
  }

  std::vector<ParameterInfo> Tensors() const override { return model_.tensors; }

  std::string Trains() const override { return model_.trains; }

  std::vector<std::string> Notes() const override {
    std::vector<std::string> notes = {model_.trains};
    notes.insert(notes.end(), model_.notes.begin(), model_.notes.end());
    if (!model_.step && options_.dtype == DType::kFloat &&
        provider_->Describe().fast_bfloat16) {
      notes.push_back(
          "this machine multiplies bfloat16 faster than float32: with `dtype` "
          "bfloat16 the run is faster and needs less memory");
    }
    if (!model_.step && options_.dtype == DType::kFloat16 &&
        options_.grad_accum_by == "tokens") {
      notes.push_back(
          Concat("`grad_accum_by=tokens`: gradients in float16 are sums over "
                 "labels, so the first steps may be skipped until the loss "
                 "scale, ",
                 options_.loss_scaling.init,
                 " at first, fits; a smaller `loss_scale` skips less"));
    }
    return notes;
  }

  std::vector<ScaleInfo> Scales() const override { return layout_.Infos(); }

  MemoryInfo Memory() const override {
    return {.arena_bytes = arena_->bytes(),
            .naive_bytes = plans_.naive_bytes(),
            .state_bytes = state_.bytes(),
            .outside_bytes = state_.outside_bytes()};
  }

  ProfileReport ReportProfile() const override {
    return profiler_ ? profiler_->Report() : ProfileReport{};
  }

  TimelineReport ReportTimeline() override {
    if (!timeline_) return {};
    Settle();
    timeline_->Finish();
    return timeline_->Report();
  }

  TransferTimes Transfers() const override { return transfers_; }

  MemoryReport ReportMemory() const override {
    const PlannedStep* largest = plans_.Largest();
    Check(largest, "expected a step before its memory is reported");
    return MakeMemoryReport(largest->executor->plan(), *largest->step.graph,
                            largest->step.gradient_names);
  }

  void Save(const std::string& folder,
            const std::map<std::string, std::string>& notes,
            const std::function<void()>& before_rename, int64_t keep) override {
    Settle();
    RequireUpdated(folder);
    Checkpoint checkpoint;
    checkpoint.step = step_;
    checkpoint.next_batch = batches_;
    checkpoint.seed = options_.seed;
    checkpoint.model = model_.Fingerprint();
    checkpoint.notes = notes;
    AddStateNotes(counts_, layout_.get().slots, options_.recipe,
                  &checkpoint.notes);
    SaveOptions save;
    save.before_rename = before_rename;
    save.keep = keep;
    SourceMap state;
    for (const auto& [name, tensor] : state_.tensors()) {
      if (!IsSaved(name)) continue;
      state.emplace(name, state_.Source(name));
      if (MustBeFinite(*model_.graph, name)) save.finite.insert(name);
    }
    frozen_.AddTo(&save);
    save.shards = sharded_.ToWrite(state_);
    if (sharded_.is_shared()) save.ranks = &ranks_->world();
    SaveCheckpoint(folder, checkpoint, state, save);
  }

  std::map<std::string, std::string> Restore(
      const std::string& folder) override {
    auto checkpoint = Latest(folder);
    Check(checkpoint.has_value(), "[", folder, "] holds no checkpoint");
    return Adopt(&*checkpoint, folder);
  }

  SessionState State() override {
    RequireWholeState();
    RequireUpdated("state");
    StateNotes notes;
    AddStateNotes(counts_, layout_.get().slots, options_.recipe, &notes);
    TensorMap tensors;
    for (const auto& [name, tensor] : state_.tensors()) {
      if (IsSaved(name)) tensors[name] = state_.Host(name);
    }
    for (const auto& [name, source] : frozen_.sources()) {
      tensors[name] = source.Pull();
    }
    return ToState(step_, notes, model_.Fingerprint(), std::move(tensors));
  }

  void SetState(const SessionState& state) override {
    RequireWholeState();
    Checkpoint checkpoint = ToCheckpoint(state, model_.Fingerprint());
    for (auto& [name, tensor] : checkpoint.state) {
      if (frozen_.Has(name)) tensor = tensor.Clone();
    }
    Adopt(&checkpoint, "state");
  }

  TensorMap ReadWeights() override {
    RequireWholeState();
    TensorMap weights;
    for (const auto& [name, source] : Weights()) weights[name] = source.Pull();
    return weights;
  }

  void SetWeights(const TensorMap& weights) override {
    RequireWholeState();
    CheckWeights(weights, Weights(), options_.model);
    frozen_.Forget(&state_);
    for (const auto& [name, tensor] : weights) {
      for (const auto& [own, kept] : masters_.Encoded(name, tensor)) {
        if (frozen_.Has(own)) {
          frozen_.Set(own, kept.Clone());
        } else {
          state_.Set(own, kept);
        }
      }
    }
    averages_.Restart(weights, &state_);
    plans_.ForgetWeightCopies();
  }

  void ExportOnnx(const std::string& path, bool external_data,
                  const std::string& into) override {
    const bool as_kept = model_.step && into.empty();
    ExportModel(model_, as_kept ? Kept() : Exported(), path, {external_data},
                into);
  }

  void ExportAdapter(const std::string& folder) override {
    ExportAdapters(model_, Exported(), folder);
  }

  std::vector<std::string> ExportSafetensors(const std::string& path) override {
    Settle();
    return ExportTorch(model_, Exported(), state_, counts_.tracked, path);
  }

  std::vector<std::string> ExportServed(const ServedFiles& files) override {
    RequireWholeState();
    return WriteServed({options_, model_, layout_.Counting(source_.fp8),
                        layout_.Kept(), Exported(), *evaluator_, runner_},
                       state_, counts_.tracked, files);
  }

 private:
  void TakeOverAll() {
    std::set<std::string> lazy;
    if (source_.frozen == "fp8") lazy = FrozenMatrices(*model_.graph);
    for (Value* value : model_.graph->Initializers()) {
      if (lazy.contains(value->name)) {
        Leave(value);
      } else if (IsKept(*value)) {
        TakeOver(value);
      }
    }
    if (held_floats_ == 0) return;
    AddRemark(Concat("`frozen` fp8: ", held_floats_,
                     " bytes of frozen floats stay in the process' memory "
                     "beside their codes, because no file has them as floats "
                     "of their own (external data, `weights`)"));
  }

  // The numbers of a frozen weight stay where they are until codes are made.
  void Leave(Value* value) {
    const bool is_given = model_.first.contains(value->name);
    const bool is_held = !options_.lacks_weights && !is_given &&
                         !MappedFileAt(value->data.raw());
    if (is_held && IsLargeWeight(*value)) held_floats_ += BytesOf(*value);
    const TensorSource first =
        is_given ? model_.TakeFirst(value) : SourceOfMapped(value->data);
    frozen_.Set(value->name, masters_.EncodedFrozen(value->name, first));
    value->data = IsLargeWeight(*value)
                      ? Tensor::Zeros(value->dtype, *value->shape)
                      : first.Pull();
  }

  // Moves the first value of a state tensor into the state. No other copy of it
  // stays, so that all first values are never twice in memory.
  void TakeOver(Value* value) {
    const std::string& name = value->name;
    // First values of another file come with their corrections.
    if (value->role == Role::kCorrection && state_.Has(name)) return;
    const Tensor first = model_.TakeFirst(value).Pull();
    for (const auto& [own, kept] : masters_.Encoded(name, first)) {
      const auto shard = sharded_.Find(own);
      state_.Read(own, shard ? PartOf(kept, *shard) : kept);
    }
    const bool shares = on_host() && state_.Get(name).dtype() == value->dtype;
    if (sharded_.Find(name) || (!shares && IsLargeWeight(*value))) {
      // The graph needs a shape and no numbers.
      value->data = Tensor::Zeros(value->dtype, *value->shape);
    } else {
      value->data = shares ? state_.Get(name) : first;
    }
    Value* same = model_.step && model_.step->apply
                      ? model_.step->apply->Find(name)
                      : nullptr;
    if (same && same->role == value->role) same->data = value->data;
  }

  // Between two steps the sums are zero, and copies follow from weights.
  bool IsSaved(const std::string& name) const {
    return !sums_.contains(name) && !plans_.IsCopy(name) &&
           !frozen_.IsDerived(name);
  }

  bool on_host() const { return provider_->device() == Device::kHost; }

  void CheckCount(const std::vector<TensorMap>& micro_batches) const {
    const int64_t most = options_.grad_accum;
    const int64_t least = TakesSmallerGroups() ? 1 : most;
    const auto got = std::ssize(micro_batches);
    Check(got >= least && got <= most, "expected ",
          least < most ? Concat(least, " to ") : "", most,
          " micro-batches a step, got ", got);
  }

  // Waits for the steps that were started. Errors: ranks divide the state.
  void RequireWholeState() {
    Settle();
    Check(!sharded_.is_shared(), "[", options_.model,
          "] expected whole state, got parts of several ranks");
  }

  void RequireUpdated(const std::string& where) const {
    Check(!state_.Has(kHalfUpdated), "[", where,
          "] can't take a checkpoint of state that an error left half updated");
  }

  // Replaces the state. Returns the caller's notes. Errors: as Restore's; the
  // session is unchanged.
  StateNotes Adopt(Checkpoint* checkpoint, const std::string& folder) {
    StateNotes notes = checkpoint->notes;
    TensorMap& state = checkpoint->state;  // may be views of a file
    for (const Value* value : KeepStatistics(state, *model_.graph)) {
      state_.Set(value->name, value->data);
    }
    CheckWeights(*checkpoint, Kept(), folder);
    std::string dropped;
    if (!model_.step) {
      const SourceMap weights = Weights();
      dropped = DropUnkept(weights, *model_.graph, options_.optimizer,
                           source_.of_rest, checkpoint);
      CheckMoments(*checkpoint, weights, options_.optimizer, folder);
    }
    TakeParts(checkpoint, sharded_);
    ScaleState scales = KeptScales(notes[kSlotsNote], state, folder);
    for (Tensor* kept : {&scales.scale, &scales.history}) {
      *kept = kept->Clone();  // a clone outlives the file
    }
    bool same = RecipeOf(notes) == options_.recipe;
    if (!same) layout_.Erase(&state);
    const int64_t batches = checkpoint->next_batch > 0
                                ? checkpoint->next_batch
                                : checkpoint->step * options_.grad_accum;
    counts_ = StepCountsOf(notes, batches, options_.grad_accum, folder);
    frozen_.Take(checkpoint);
    started_.Drop();
    ReplaceState(*checkpoint, sharded_, &state_);
    step_ = checkpoint->step;
    batches_ = batches;
    std::optional<StaticScales> as_static;
    if (options_.scales.empty()) as_static = AsStatic(scales, folder);
    // Before the first step none is measured.
    layout_.Adopt(std::move(scales), same, step_ > 0, std::move(as_static));
    step_done_ = false;
    plans_.Clear();
    EraseStateNotes(&notes);
    AddRemark(dropped);
    return notes;
  }

  std::optional<Checkpoint> Latest(const std::string& folder) const {
    try {
      return LoadLatestCheckpoint(folder, model_.Fingerprint());
    } catch (const Error& error) {
      if (model_.copies.empty()) throw;
      Fail(error.what(), "; a run that did not tie ", model_.copies[0].name,
           " to ", model_.copies[0].first, " goes on with `no_tie`");
    }
  }

  // No part is measured any more before a kept scale quantizes it.
  void UseKeptScales() {
    if (!layout_.UseKept() || source_.mesh.tp == 1) return;
    Settle();
    plans_.Clear();
  }

  // The first step tells which layers the ranks of the axis tp divide.
  void DivideState(const StepGraph& step) {
    AddRemark(LayersRemark(step.layers, options_.model, ranks_->mesh().tp));
    layout_.Divide(step);
    sharded_.Divide(step.splits, model_.graph.get(), &state_);
  }

  PlannedStep& Plan(StepKind kind, const TensorMap& feeds, bool input_gradients,
                    bool measures = false) {
    if (measures) CheckMeasures(options_, ranks_);
    PlanKey key{kind, input_gradients,
                ShapesOf(*model_.graph, feeds, options_.model),
                ValuesOf(*model_.graph, feeds)};
    const bool trains = TrainsOnSamples(kind);
    key.extras = {measures || (trains && stats_.Measures(step_ + 1)),
                  trains && source_.dump.Dumps(step_ + 1)};
    key.has_loss = kind != StepKind::kEval || HasLabel(model_.loss, feeds);
    key.label = LabelOf(*model_.graph, model_.loss, feeds);
    if (kind == StepKind::kEval) key.averages = averages_.ToRead(state_);
    return Planned(key, [&](const std::optional<MemoryFit>& fit) {
      return NewPlan(key, input_gradients, fit);
    });
  }

  // The plan for the key; `make` makes it if there is none.
  template <typename F>
  PlannedStep& Planned(const PlanKey& key, F make) {
    PlannedStep* known = plans_.Find(key);
    const bool together = PlansTogether(key.kind);
    Lacks lacks = known ? known->lacks() : Lacks::kPlan;
    if (together) lacks = MostOfRanks(*ranks_, lacks);
    if (lacks == Lacks::kPlan) {
      if (limit_ && together) ShareLimit();
      const std::optional<MemoryFit> fit = FitFor(key, &known);
      std::optional<PlannedStep> next;
      if (known) {
        order_.Agree(key.kind, *known->step.graph, false);
      } else {
        next = Complete(make(fit));
      }
      if (limit_) FitBesideOthers(next ? &*next : nullptr, key.kind);
      if (next) known = &Keep(std::move(*next));
    }
    // Ranks also make their copies at the same time.
    if (lacks != Lacks::kNothing && known->quantizer) {
      known->quantizer->Forget();
    }
    if (lacks != Lacks::kPlan || !together) return *known;
    known->executor->CompareCollectives();
    if (known->quantizer) known->quantizer->executor().CompareCollectives();
    return *known;
  }

  // Whether all ranks plan graphs of this kind at the same time: they have
  // collectives. With a limit of memory a rank may have dropped a plan that
  // others still have.
  bool PlansTogether(StepKind kind) const {
    if (order_.IsNeeded(kind)) return true;
    const bool borrows =
        kind == StepKind::kEval || kind == StepKind::kGradients;
    return limit_ && ranks_ && (!borrows || sharded_.is_shared());
  }

  // `memory` auto differs between ranks: the least of their limits is
  // everyone's.
  void ShareLimit() {
    if (std::exchange(shared_limit_, true)) return;
    const auto mine = static_cast<int64_t>(
        std::min<size_t>(limit_->bytes, std::numeric_limits<int64_t>::max()));
    limit_->bytes = static_cast<size_t>(-MostOfRanks(*ranks_, -mine));
  }

  // What the graph of a batch computes again so that it fits; nullopt: nobody
  // searches it. Errors: nothing makes it fit.
  std::optional<MemoryFit> FitFor(const PlanKey& key, PlannedStep** known) {
    if (!limit_ || !TrainsOnSamples(key.kind)) return std::nullopt;
    if (ranks_) return FitForAllRanks(key, known);
    if (auto dropped = plans_.DroppedFit(key)) return dropped;
    const MemoryFit fit = Search(key);
    if (!fit.fits()) fit.Refuse();
    AddRemark(fit.Text());
    return fit;
  }

  // All plans of the ranks have one choice, for their collectives must match.
  // The rank with the largest batch decides. If the choice changes, all other
  // plans go, and the known one, too.
  MemoryFit FitForAllRanks(const PlanKey& key, PlannedStep** known) {
    const int decides = RankOfLargest(*ranks_, key);
    const MemoryFit fit = FitOfRank(*ranks_, decides, [&] {
      if (*known) return *(*known)->fit;
      if (auto dropped = plans_.DroppedFit(key)) return *dropped;
      if (choice_ && choice_->chooses()) {
        MemoryFit same = *choice_;
        same.after = PlanOnPaper(key, ChoiceOf(same)).total() + limit_->reserve;
        if (same.fits()) return same;
      }
      return Search(key);
    });
    if (!fit.fits()) fit.Refuse();
    if (!choice_ || choice_->again != fit.again ||
        choice_->execution != fit.execution) {
      Settle();
      plans_.Clear();
      order_.Forget();  // a choice moves gathers
      *known = nullptr;
      AddRemark(fit.Text());
    }
    choice_ = fit;
    return fit;
  }

  MemoryFit Search(const PlanKey& key) {
    return FitMemory(
        *limit_, HardwareOf(provider_->device()), options_,
        [&](const StepChoice& choice) { return PlanOnPaper(key, choice); });
  }

  // All that the session holds besides plans.
  StepMemorySum Held() const {
    StepMemorySum sum(provider_->CanRecord() && !profiler_, state_.places());
    sum.AddState(state_.tensors());
    return sum;
  }

  // With the update of a micro step, but without plans that can be dropped.
  PaperStep PlanOnPaper(const PlanKey& key, const StepChoice& choice) {
    const KernelRegistry& kernels = provider_->Kernels();
    const auto plan = [&](Graph& graph) {
      return MakePlan(graph, kernels, provider_->device(), provider_->queue());
    };
    StepSource source = source_;
    source.extras = key.extras;
    ApplyChoice(choice, &source);
    PaperStep paper;
    paper.step = BuildStepGraph(source, key.kind, key.shapes, false, key.values,
                                key.label, layout_.For(key.kind));
    Graph& graph = *paper.step.graph;
    AddReport(paper.step, runner_);
    FitToKernels(graph, kernels, options_, *evaluator_, runner_,
                 choice.execution);
    StepMemorySum sum = Held();
    std::shared_ptr<Graph> copies;
    StepGraph apply;
    if (key.kind == StepKind::kMicro) {
      MicroSums sums;
      for (int64_t i = 0; i < options_.grad_accum; ++i) sums.Add(paper.step);
      apply = BuildApplyGraph(source_, sums, layout_.With(paper.step));
      AddReport(apply, runner_);
      FitToKernels(*apply.graph, kernels, options_, *evaluator_, runner_);
      const auto update = plan(*apply.graph);
      paper.moments = FloatMoments(update);
      sum.Add(update, nullptr);
      copies = SplitQuantizer(graph, options_.shard.what, runner_);
    } else {
      copies = KeepPrimaryWeights(source, kernels, &paper.step);
    }
    if (copies) sum.AddCopies(plan(*copies));
    paper.plan = plan(graph);
    paper.moments += FloatMoments(paper.plan);
    paper.is_in_file = source.step != nullptr;
    sum.Add(paper.plan, copies.get());
    const StepMemory memory = sum.Sum();
    paper.arena = memory.arena;
    paper.state = memory.state;
    paper.others = memory.others;
    return paper;
  }

  PlannedStep NewPlan(PlanKey key, bool input_gradients,
                      const std::optional<MemoryFit>& fit) {
    const StepKind kind = key.kind;
    const bool lays_out = layout_.LaysOut(kind);
    StepSource source = source_;
    source.extras = key.extras;
    if (!key.has_loss) source.loss.kind.clear();
    source.averages = key.averages;
    if (fit) ApplyChoice(ChoiceOf(*fit), &source);
    PlannedStep planned;
    planned.fit = fit;
    planned.step = BuildStepGraph(source, kind, key.shapes, input_gradients,
                                  key.values, key.label, layout_.For(kind));
    if (key.label) {
      model_.loss = planned.step.loss_spec;
      layout_.Learn(model_.loss);
    }
    key.values = planned.step.specialized.values;
    if (!sharded_.is_known()) DivideState(planned.step);
    if (lays_out) {
      AddRemark(layout_.LayOut(planned.step));
      // Earlier plans for evaluation may have another layout.
      plans_.Clear();
      AddRemark(UnreadNote(planned.step.specialized));
      for (const auto& remark : planned.step.Remarks()) AddRemark(remark);
      AddRemark(frozen_.FileRemark());
    }
    planned.key = std::move(key);
    return planned;
  }

  // Fits the graph to the provider and plans it.
  PlannedStep Complete(PlannedStep planned) {
    Graph& graph = *planned.step.graph;
    StepKind kind = planned.key.kind;
    planned.report = AddReport(planned.step, runner_);
    FitToKernels(graph, provider_->Kernels(), options_, *evaluator_, runner_,
                 planned.fit ? planned.fit->execution : ExecutionChoice{});
    // The copies of a micro step get the common order with it.
    const bool micro = kind == StepKind::kMicro;
    if (micro) order_.Agree(kind, graph, true);
    planned.quantizer = TakeQuantizer(&planned.step);
    if (!micro) order_.Agree(kind, graph, true);
    planned.executor = MakeExecutor(planned.step.graph);
    return planned;
  }

  PlannedStep& Keep(PlannedStep planned) {
    FindRoom(planned);
    sums_.insert(planned.step.sums.begin(), planned.step.sums.end());
    return plans_.Keep(std::move(planned));
  }

  // Takes the quantization of weights out of a step; null: it stays there, or
  // there is none.
  std::shared_ptr<Quantizer> TakeQuantizer(StepGraph* step) {
    std::shared_ptr<Graph> copies =
        KeepPrimaryWeights(source_, provider_->Kernels(), step);
    if (step->kind == StepKind::kMicro) {
      copies = SplitQuantizer(*step->graph, options_.shard.what, runner_);
    }
    const std::string& remark = step->primary_weights;
    if (!remark.empty() && !std::exchange(said_primary_, true)) {
      AddRemark(remark);
    }
    if (!copies) return nullptr;
    if (auto known = plans_.FindQuantizer(*copies)) return known;
    return std::make_shared<Quantizer>(copies, MakeExecutor(copies));
  }

  // Drops the oldest plans if the next one does not fit beside them; null: this
  // rank has it. Errors: it does not fit alone, on any rank that plans it.
  void FitBesideOthers(const PlannedStep* next, StepKind kind) {
    const StepMemorySum held = Held();
    size_t bytes = next ? MemoryOf(held, {}, *next).total() : 0;
    if (PlansTogether(kind)) bytes = MostOfRanks(*ranks_, bytes);
    CheckLimit(bytes, *limit_, kind);
    if (!next) return;
    const bool dropped = MakeRoom(held, *next, *limit_, &plans_);
    // It has the size of plans that are gone.
    const size_t needed = MemoryOf(held, plans_.plans(), *next).arena;
    if (arena_->bytes() > needed) arena_->Release();
    if (dropped && !std::exchange(said_dropped_, true)) {
      AddRemark(
          "`memory`: a plan was dropped so that another one fits; it is made "
          "again when its batch comes");
    }
  }

  // Nothing of the plan is allocated yet. Errors: the device has no room.
  void FindRoom(const PlannedStep& planned) {
    StepKind kind = planned.key.kind;
    const StepMemory bytes = MemoryOf(Held(), plans_.plans(), planned);
    std::string remark = memory_ ? CheckRoom(bytes, *memory_) : "";
    bool whole = kind == StepKind::kTrain || kind == StepKind::kApply;
    if (!whole || std::exchange(said_memory_, true)) return;
    AddRemark(remark);
    AddRemark(PlacesRemark(options_, bytes.outside));
  }

  void AddRemark(const std::string& text) {
    if (!text.empty()) remark_ += (remark_.empty() ? "" : "; ") + text;
  }

  std::unique_ptr<Executor> MakeExecutor(std::shared_ptr<const Graph> graph) {
    if (options_.before_plan) options_.before_plan();
    auto executor = std::make_unique<Executor>(graph, *provider_, arena_);
    executor->set_profiler(profiler_.get());
    if (ranks_) executor->set_groups(&ranks_->groups());
    executor->set_overlap(options_.overlap);
    executor->set_transfer_times(&transfers_);
    executor->set_timeline(timeline_.get());
    if (profiler_ || timeline_) profiled_.push_back(std::move(graph));
    return executor;
  }

  // `micro`: position of the micro-batch in its step.
  void RunStep(PlannedStep& planned, const TensorMap& feeds, double lr,
               int64_t micro, StartedStep* started) {
    ProvideFrozen(planned);
    TensorMap all = planned.Known(feeds);
    if (!planned.step.lr.empty()) {
      all[planned.step.lr] = Tensor::Scalar(static_cast<float>(lr));
    }
    if (planned.quantizer) {
      planned.quantizer->executor().set_observer(observer_);
    }
    const TensorMap& copies = plans_.CopiesFor(planned, state_);
    all.insert(copies.begin(), copies.end());
    auto draw = static_cast<uint64_t>(step_ * options_.grad_accum + micro);
    Execute(planned, all,
            DrawOfRank(options_.seed, draw, ranks_ ? ranks_->data_rank() : 0),
            started);
  }

  void Execute(PlannedStep& planned, const TensorMap& feeds, uint64_t draw,
               StartedStep* started) {
    averages_.Begin(*planned.step.graph, masters_, &state_);
    state_.AddOutside(planned.executor->plan());
    planned.executor->set_observer(observer_);
    TensorMap outputs = planned.executor->Run(feeds, state_.tensors(), draw);
    started->reports.emplace_back(planned.report,
                                  outputs.at(planned.report->output));
    started->TakeExtras(planned.step, outputs);
  }

  // Waits for the started steps and reads their reports.
  void Settle() {
    try {
      started_.Settle(&counts_);
    } catch (const Error& error) {
      state_.tensors().emplace(kHalfUpdated, Tensor::Scalar(true));
      Fail(error.what(), "; state must be restored");
    }
  }

  void EraseSums() {
    for (const std::string& name : sums_) state_.Erase(name);
  }

  // Adds clones of the state that the plan moves, except sums, to `before`.
  void Remember(const PlannedStep& planned, TensorMap* before) const {
    for (const StateBinding& binding : planned.step.graph->state) {
      const std::string& name = binding.state->name;
      if (!state_.Has(name) || sums_.contains(name)) continue;
      if (!before->contains(name)) {
        before->emplace(name, provider_->Clone(state_.Get(name)));
      }
    }
  }

  // After an error the sums start anew, and running statistics and scales have
  // their values from before.
  void Accumulate(const std::vector<TensorMap>& micro_batches, double lr,
                  StartedStep* started) {
    struct AtEnd {
      PlanCache& plans;
      ~AtEnd() { plans.ForgetWeightCopies(); }
    } at_end{plans_};
    TensorMap before;
    MicroSums sums;
    try {
      for (size_t i = 0; i < micro_batches.size(); ++i) {
        PlannedStep& planned = Plan(StepKind::kMicro, micro_batches[i], false);
        Remember(planned, &before);
        RunStep(planned, micro_batches[i], lr, static_cast<int64_t>(i),
                started);
        sums.Add(planned.step);
      }
      RunApply(sums, lr, started);
    } catch (...) {
      EraseSums();
      for (const auto& [name, tensor] : before) state_.Set(name, tensor);
      throw;
    }
  }

  PlannedStep& PlanApply(const MicroSums& sums) {
    PlanKey key{StepKind::kApply, false, {}, {}, sums};
    return Planned(key, [&](const std::optional<MemoryFit>&) {
      PlannedStep apply;
      apply.step = BuildApplyGraph(source_, key.sums, layout_.get());
      for (const auto& remark : apply.step.Remarks()) AddRemark(remark);
      apply.key = key;
      return apply;
    });
  }

  void RunApply(const MicroSums& sums, double lr, StartedStep* started) {
    PlannedStep& planned = PlanApply(sums);
    auto rate = Tensor::Scalar(static_cast<float>(lr));
    Execute(planned, {{planned.step.lr, rate}}, 0, started);
  }

  // Reads the frozen weights that the plan reads, or makes their codes.
  void ProvideFrozen(const PlannedStep& planned) {
    const auto make = [this](const FrozenCodes& codes) {
      FitToKernels(*codes.maker, provider_->Kernels(), options_, *evaluator_,
                   runner_);
      Executor maker(codes.maker, *provider_, arena_);
      state_.AddOutside(maker.plan());
      maker.Run({}, state_.tensors());
      provider_->Synchronize();
    };
    if (const auto& quantizer = planned.quantizer) {
      frozen_.Provide({}, quantizer->executor().plan(), &state_, make);
    }
    frozen_.Provide(planned.step.frozen, planned.executor->plan(), &state_,
                    make);
  }

  // Runs a plan that updates nothing, with the state entries that it reads.
  // Entries that the plan would add (a scale state that no training graph has
  // made yet) stay out of state_. Returns the outputs on the host.
  TensorMap RunBorrowing(const PlannedStep& planned, const TensorMap& feeds) {
    ProvideFrozen(planned);
    TensorMap borrowed;
    for (const Value* value : planned.executor->plan().states) {
      const std::string& name = value->name;
      if (state_.Has(name)) borrowed.emplace(name, state_.Get(name));
    }
    TensorMap outputs = planned.executor->Run(planned.Known(feeds), borrowed);
    for (auto& [name, tensor] : outputs) tensor = provider_->ToHost(tensor);
    return outputs;
  }

  // The tensors of the model as the state keeps them.
  SourceMap Kept() const {
    SourceMap kept;
    for (const Value* value : model_.graph->Initializers()) {
      if (!IsKept(*value)) continue;
      for (const std::string& name : masters_.NamesFor(value->name)) {
        kept.emplace(name, frozen_.Has(name) ? frozen_.sources().at(name)
                                             : sharded_.Source(state_, name));
      }
    }
    return kept;
  }

  SourceMap Weights() const { return masters_.Decoded(Kept()); }

  // By `eval_with`.
  SourceMap Exported() const {
    return averages_.Exported(Weights(), sharded_, state_);
  }

  SessionOptions options_;
  std::unique_ptr<ExecutionProvider> provider_;
  const MeshRanks* ranks_;  // null: this process trains alone
  TransferTimes transfers_;
  const StatsSpec stats_;
  PassRunner runner_;
  TrainingModel model_;
  std::unique_ptr<Evaluator> evaluator_;
  std::shared_ptr<SharedArena> arena_;  // of all plans: only one runs at a time
  std::unique_ptr<Profiler> profiler_;
  const StepSource source_;
  const Masters masters_;
  const Averages averages_;
  FrozenWeights frozen_;
  StateStore state_;
  RunLayout layout_;
  CollectiveOrder order_;
  ShardedState sharded_;
  int64_t step_ = 0;
  int64_t batches_ = 0;     // micro-batches of these steps
  StepCounts counts_;       // skipped steps, and tracked micro-batches
  bool step_done_ = false;  // one of this session
  PlanCache plans_;
  StartedSteps started_;
  std::set<std::string> sums_;  // names of the sums of micro steps
  std::string remark_;          // for the step that is being started
  size_t held_floats_ = 0;      // bytes of frozen weights that no file has
  // A device's memory before this session took any.
  std::optional<DeviceMemory> memory_;
  std::optional<StepLimit> limit_;   // of the options
  bool shared_limit_ = false;        // it is the least of all ranks
  std::optional<MemoryFit> choice_;  // of ranks, for all their plans
  bool said_memory_ = false, said_dropped_ = false, said_primary_ = false;
  // The profiler and the timeline name nodes of graphs whose plans may no
  // longer exist.
  std::vector<std::shared_ptr<const Graph>> profiled_;
  std::unique_ptr<DeviceTimeline> timeline_;
  NodeObserver* observer_ = nullptr;  // of the nodes of steps
};

}  // namespace

std::unique_ptr<TrainingSession> MakeSession(
    const SessionOptions& options, std::unique_ptr<ExecutionProvider> provider,
    const MeshRanks* ranks) {
  return std::make_unique<Session>(options, std::move(provider), ranks);
}

std::unique_ptr<TrainingSession> TrainingSession::Create(
    const SessionOptions& options) {
  ProviderOptions of_provider = options.provider_options;
  of_provider.timeline |= !options.timeline.empty();
  return MakeSession(options, MakeProvider(options.provider, of_provider));
}

}  // namespace onnx_fp8
