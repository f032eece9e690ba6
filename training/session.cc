// SPDX-License-Identifier: Apache-2.0
#include "onnx_fp8/session.h"

#include <malloc.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <list>
#include <optional>
#include <set>
#include <utility>

#include "graph/export_weights.h"
#include "onnx_fp8/check.h"
#include "onnx_fp8/hash.h"
#include "onnx_fp8/random.h"
#include "providers/executor.h"
#include "training/carry_scales.h"
#include "training/checkpoint.h"
#include "training/make_provider.h"
#include "training/pipelines.h"
#include "training/safetensors.h"
#include "training/static_scales.h"
#include "training/step_graph.h"
#include "training/torch_weights.h"
#include "training/training_model.h"

namespace onnx_fp8 {
namespace {

// Our entries among a checkpoint's notes.
constexpr char kSkipped[] = "session.skipped";
constexpr char kRecipe[] = "session.recipe";

// Separates the nodes' random numbers from other uses of the run's seed.
constexpr uint64_t kDrawKey = 0x64726f706f757421;

using ShapeMap = std::map<std::string, Shape>;

// A planned graph and the names to talk to it.
struct PlannedStep {
  StepGraph step;
  std::unique_ptr<Executor> executor;
  // Of a micro step: quantizes the weights; its outputs in this step.
  std::unique_ptr<Executor> quantiser;
  TensorMap weight_copies;
};

class Session : public TrainingSession {
 public:
  explicit Session(const SessionOptions& options)
      : options_(options),
        provider_(MakeProvider(options.provider)),
        runner_(MakePassRunner(options)),
        model_(LoadTrainingModel(options, runner_)),
        evaluator_(MakeEvaluator()),
        arena_(std::make_shared<SharedArena>(*provider_)),
        source_(MakeStepSource(options_, model_, *evaluator_, runner_)) {
    for (Value* value : model_.graph->Initializers()) {
      if (value->role == Role::kNone) continue;
      state_[value->name] = value->data.Clone();
      // Only the state counts from now on: the file's values would waste
      // memory.
      value->data = Tensor::OfType(value->dtype, *value->shape);
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

  StepResult Step(const std::vector<TensorMap>& micro_batches,
                  double lr) override {
    Check(static_cast<int64_t>(micro_batches.size()) == options_.grad_accum,
          "expected ", options_.grad_accum, " micro-batches a step, got ",
          micro_batches.size());
    if (profiler_) profiler_->BeginStep();
    StepResult result;
    result.step = step_ + 1;
    TensorMap outputs;
    if (options_.grad_accum == 1) {
      outputs = RunStep(StepKind::kTrain, micro_batches[0], lr, 0);
      result.loss = Loss(outputs);
      result.cause = NotFinite(outputs);
    } else {
      outputs = Accumulate(micro_batches, lr, &result);
    }
    ++step_;
    result.remark = std::exchange(remark_, "");
    result.grad_norm = outputs.at(last_->step.grad_norm).data<float>()[0];
    result.skipped = !outputs.at(last_->step.ok).data<bool>()[0];
    if (!result.skipped) {
      result.cause.clear();
    } else {
      ++skipped_;
      if (result.cause.empty()) {
        result.cause = std::isfinite(result.loss) ? "a gradient is not finite"
                                                  : "the loss is not finite";
      }
    }
    if (profiler_) profiler_->EndStep();
    return result;
  }

  EvalResult Eval(const TensorMap& feeds) override {
    PlannedStep& planned = Plan(StepKind::kEval, feeds, false);
    TensorMap state = Borrow(planned);
    TensorMap outputs = planned.executor->Run(Known(planned, feeds), state);
    EvalResult result;
    if (!planned.step.loss.empty()) {
      result.loss = outputs.at(planned.step.loss).data<float>()[0];
    }
    for (const std::string& name : planned.step.outputs) {
      result.outputs[name] = outputs.at(name);
    }
    return result;
  }

  GradientResult Gradients(const TensorMap& feeds,
                           bool input_gradients) override {
    PlannedStep& planned = Plan(StepKind::kGradients, feeds, input_gradients);
    TensorMap state = Borrow(planned);
    TensorMap outputs = planned.executor->Run(Known(planned, feeds), state);
    GradientResult result;
    result.loss = outputs.at(planned.step.loss).data<float>()[0];
    for (const std::string& name : planned.step.outputs) {
      result.outputs[name] = outputs.at(name);
    }
    for (const auto& [output, name] : planned.step.gradients) {
      result.gradients[name] = outputs.at(output);
    }
    for (const auto& [output, name] : planned.step.input_gradients) {
      result.input_gradients[name] = outputs.at(output);
    }
    return result;
  }

  int64_t step() const override { return step_; }
  int64_t skipped_steps() const override { return skipped_; }

  std::vector<InputInfo> Inputs() const override {
    std::vector<InputInfo> infos;
    for (const Value* value : model_.graph->inputs) {
      infos.push_back({value->name, value->dtype,
                       value->shape.value_or(Shape{}), value->axis_names});
    }
    return infos;
  }

  std::vector<ParameterInfo> Parameters() const override {
    return model_.Parameters();
  }

  std::vector<std::string> Notes() const override { return model_.notes; }

  std::vector<ScaleInfo> Scales() const override {
    std::vector<ScaleInfo> infos;
    auto state = state_.find(kScaleState);
    for (size_t i = 0; source_.slots && i < source_.slots->size(); ++i) {
      const ScaleSlot& slot = (*source_.slots)[i];
      infos.push_back(
          {slot.Key(),
           state == state_.end() ? slot.scale : state->second.data<float>()[i],
           slot.scaling == Scaling::kDelayed});
    }
    return infos;
  }

  MemoryInfo Memory() const override {
    MemoryInfo info;
    info.arena_bytes = arena_->bytes();
    for (const PlannedStep& planned : plans_) {
      const onnx_fp8::Plan& plan = planned.executor->plan();
      info.naive_bytes = std::max(info.naive_bytes, plan.naive_bytes);
    }
    for (const auto& [name, tensor] : state_)
      info.state_bytes += tensor.bytes();
    return info;
  }

  ProfileReport ReportProfile() const override {
    return profiler_ ? profiler_->Report() : ProfileReport{};
  }

  MemoryReport ReportMemory() const override {
    Check(!plans_.empty(), "expected a step before its memory is reported");
    auto bytes = [](const PlannedStep& planned) {
      return planned.executor->plan().arena_bytes;
    };
    const PlannedStep& largest = *std::ranges::max_element(plans_, {}, bytes);
    return MakeMemoryReport(largest.executor->plan(), *largest.step.graph,
                            largest.step.gradient_names);
  }

  void Save(const std::string& folder,
            const std::map<std::string, std::string>& notes,
            const std::function<void()>& before_rename) override {
    Check(!state_.contains(kHalfUpdated), "[", folder,
          "] can't take a checkpoint of state that an error left half updated");
    Checkpoint checkpoint;
    checkpoint.state = state_;
    EraseSums(checkpoint.state);  // zero between two steps
    checkpoint.step = step_;
    checkpoint.next_batch = step_ * options_.grad_accum;
    checkpoint.seed = options_.seed;
    checkpoint.model = Fingerprint();
    checkpoint.notes = notes;
    checkpoint.notes[kSkipped] = std::to_string(skipped_);
    checkpoint.notes[kSlotsNote] =
        SlotsText(source_.slots.value_or(std::vector<ScaleSlot>()));
    checkpoint.notes[kRecipe] = RecipeText(options_.recipe);
    SaveOptions save;
    save.before_rename = before_rename;
    SaveCheckpoint(folder, checkpoint, save);
  }

  std::map<std::string, std::string> Restore(
      const std::string& folder) override {
    auto checkpoint = Latest(folder);
    Check(checkpoint.has_value(), "[", folder, "] holds no checkpoint");
    std::map<std::string, std::string> notes = checkpoint->notes;
    TensorMap state;
    for (const auto& [name, tensor] : checkpoint->state) {
      state[name] = tensor.Clone();
    }
    for (const auto& [name, tensor] : Weights()) {
      auto it = state.find(name);
      auto type = [](const Tensor& t) {
        return Name(t.dtype()) + ToString(t.shape());
      };
      Check(it != state.end() && type(it->second) == type(tensor), "[", folder,
            "] expected the checkpoint to hold ", name, " as ", type(tensor),
            ", got ", it == state.end() ? "none" : type(it->second));
    }
    ScaleState scales = KeptScales(notes[kSlotsNote], state, folder);
    // Evaluation uses the slots of the checkpoint, if the recipe is the same,
    // until a step has laid out this run's slots.
    bool same = ParseRecipe(notes[kRecipe]) == options_.recipe;
    if (!same) EraseScales(state);
    int64_t skipped = 0;
    const std::string& text = notes[kSkipped];
    const char* end = text.data() + text.size();
    Check(std::from_chars(text.data(), end, skipped).ptr == end &&
              !text.empty() && skipped >= 0,
          "[", folder, "] expected a number of steps as the checkpoint's note ",
          kSkipped, ", got \"", text, "\"");
    skipped_ = skipped;
    state_ = std::move(state);
    step_ = checkpoint->step;
    if (options_.scales.empty()) source_.fp8.scales = AsStatic(scales, folder);
    source_.slots.reset();
    if (same) source_.slots = scales.slots;
    restored_ = std::move(scales);
    laid_out_ = false;
    plans_.clear();
    keys_.clear();
    for (const char* own : {kSkipped, kSlotsNote, kRecipe}) notes.erase(own);
    return notes;
  }

  void ExportOnnx(const std::string& path, bool external_data) override {
    ExportWithWeights(options_.model, path, model_.WithCopies(Weights()),
                      {external_data});
  }

  std::vector<std::string> ExportSafetensors(const std::string& path) override {
    std::vector<std::string> remarks;
    WriteSafetensors(path, ToTorch(model_.WithCopies(Weights()),
                                   model_.AllNames(), &remarks));
    return remarks;
  }

 private:
  struct PlanKey {
    StepKind kind;
    bool input_gradients;
    ShapeMap shapes;
    // The values of the inputs that decided something.
    InputValues values = {};
    MicroSums sums = {};  // of kApply

    bool Fits(const PlanKey& wanted) const {
      return kind == wanted.kind && input_gradients == wanted.input_gradients &&
             shapes == wanted.shapes && sums == wanted.sums &&
             std::ranges::includes(wanted.values, values);
    }
  };

  std::optional<Checkpoint> Latest(const std::string& folder) const {
    try {
      return LoadLatestCheckpoint(folder, Fingerprint());
    } catch (const Error& error) {
      if (model_.copies.empty()) throw;
      Fail(error.what(), "; a run that did not tie ", model_.copies[0].name,
           " to ", model_.copies[0].first, " goes on with --no-tie");
    }
  }

  // Feeds of the model's own inputs, with their shapes. Errors: one missing.
  ShapeMap Shapes(const TensorMap& feeds) const {
    ShapeMap shapes;
    for (const Value* input : model_.graph->inputs) {
      auto it = feeds.find(input->name);
      Check(it != feeds.end(), "[", options_.model,
            "] expected data for input \"", input->name, "\", got none");
      shapes[input->name] = it->second.shape();
    }
    return shapes;
  }

  std::list<PlanKey>::iterator FindPlan(const PlanKey& wanted) {
    return std::ranges::find_if(
        keys_, [&](const PlanKey& key) { return key.Fits(wanted); });
  }

  PlannedStep& Plan(StepKind kind, const TensorMap& feeds,
                    bool input_gradients) {
    PlanKey key{kind, input_gradients, Shapes(feeds),
                ValuesOf(*model_.graph, feeds)};
    auto known = FindPlan(key);
    if (known != keys_.end()) {
      auto at = std::distance(keys_.begin(), known);
      // The most recently used plan comes first.
      plans_.splice(plans_.begin(), plans_, std::next(plans_.begin(), at));
      keys_.splice(keys_.begin(), keys_, known);
      return plans_.front();
    }
    bool lays_out = kind == StepKind::kTrain || kind == StepKind::kMicro;
    lays_out &= !laid_out_;
    if (lays_out) source_.slots.reset();
    PlannedStep planned;
    planned.step =
        BuildStepGraph(source_, kind, key.shapes, input_gradients, key.values);
    key.values = planned.step.specialised.values;
    if (lays_out) {
      LayOutScales(planned.step);
      std::string note = UnreadNote(planned.step.specialised);
      if (!note.empty()) remark_ += (remark_.empty() ? "" : "; ") + note;
    }
    return Keep(std::move(key), std::move(planned));
  }

  // The first step that trains lays out the kept scales. Scales that a
  // checkpoint has for them go on.
  void LayOutScales(const StepGraph& step) {
    ScaleState fresh;
    fresh.slots = step.fp8.slots;
    for (ScaleSlot& slot : fresh.slots) slot.amax = nullptr;
    for (auto [name, tensor] : {std::pair{kScaleState, &fresh.scale},
                                {kHistoryState, &fresh.history}}) {
      const Value* value = step.graph->Find(name);
      if (value && value->role == Role::kState) *tensor = value->data.Clone();
    }
    if (restored_) {
      remark_ = CarryScales(*restored_, &fresh);
      EraseScales(state_);
    }
    if (fresh.scale.defined()) state_[kScaleState] = fresh.scale;
    if (fresh.history.defined()) state_[kHistoryState] = fresh.history;
    source_.slots = std::move(fresh.slots);
    restored_.reset();
    laid_out_ = true;
    // Earlier plans for evaluation may have another layout.
    plans_.clear();
    keys_.clear();
  }

  // A tensor of the model that happens to have such a name stays.
  void EraseScales(TensorMap& state) const {
    std::erase_if(state, [this](const auto& entry) {
      return entry.first.starts_with("fp8.") &&
             !model_.graph->Find(entry.first);
    });
  }

  PlannedStep& Keep(PlanKey key, PlannedStep planned) {
    Graph& graph = *planned.step.graph;
    FitToKernels(graph, provider_->Kernels(), options_, *evaluator_, runner_);
    if (key.kind == StepKind::kMicro) {
      std::shared_ptr<Graph> copies = SplitQuantiser(graph, runner_);
      if (copies) planned.quantiser = MakeExecutor(copies);
    }
    planned.executor = MakeExecutor(planned.step.graph);
    sums_.insert(planned.step.sums.begin(), planned.step.sums.end());
    plans_.push_front(std::move(planned));
    keys_.push_front(std::move(key));
    if (static_cast<int64_t>(plans_.size()) > options_.max_plans) {
      plans_.pop_back();
      keys_.pop_back();
    }
    return plans_.front();
  }

  std::unique_ptr<Executor> MakeExecutor(std::shared_ptr<const Graph> graph) {
    // The C library keeps memory that reading the file and building the graph
    // have freed, and the arena is too large to come from there.
    malloc_trim(0);
    auto executor = std::make_unique<Executor>(graph, *provider_, arena_);
    executor->set_profiler(profiler_.get());
    if (profiler_) profiled_.push_back(std::move(graph));
    return executor;
  }

  // The feeds for which the graph has inputs.
  static TensorMap Known(const PlannedStep& planned, const TensorMap& feeds) {
    TensorMap known;
    for (const Value* input : planned.step.graph->inputs) {
      auto it = feeds.find(input->name);
      if (it != feeds.end()) known.insert(*it);
    }
    return known;
  }

  float Loss(const TensorMap& outputs) const {
    return outputs.at(last_->step.loss).data<float>()[0];
  }

  // `micro`: position of the micro-batch in its step.
  TensorMap RunStep(StepKind kind, const TensorMap& feeds, double lr,
                    int64_t micro) {
    PlannedStep& planned = Plan(kind, feeds, false);
    last_ = &planned;
    TensorMap all = Known(planned, feeds);
    if (!planned.step.lr.empty()) {
      all[planned.step.lr] = Tensor::Scalar(static_cast<float>(lr));
    }
    if (planned.quantiser && planned.weight_copies.empty()) {
      planned.weight_copies = planned.quantiser->Run({}, state_);
    }
    all.insert(planned.weight_copies.begin(), planned.weight_copies.end());
    auto draw = static_cast<uint64_t>(step_ * options_.grad_accum + micro);
    return planned.executor->Run(all, state_,
                                 RandomBits(options_.seed ^ kDrawKey, draw));
  }

  void EraseSums(TensorMap& state) const {
    for (const std::string& name : sums_) state.erase(name);
  }

  // Adds clones of the state that the plan moves, except sums, to `before`.
  void Remember(const PlannedStep& planned, TensorMap* before) const {
    for (const StateBinding& binding : planned.step.graph->state) {
      auto it = state_.find(binding.state->name);
      if (it == state_.end() || sums_.contains(it->first)) continue;
      if (!before->contains(it->first)) {
        before->emplace(it->first, it->second.Clone());
      }
    }
  }

  // Returns the outputs of the update; fills in the loss and the cause. After
  // an error the sums start anew, and running statistics and scales have their
  // values from before.
  TensorMap Accumulate(const std::vector<TensorMap>& micro_batches, double lr,
                       StepResult* result) {
    struct AtEnd {
      Session& session;
      ~AtEnd() {
        for (PlannedStep& planned : session.plans_) {
          planned.weight_copies.clear();
        }
      }
    } at_end{*this};
    TensorMap before;
    double loss = 0;
    MicroSums sums;
    try {
      for (size_t i = 0; i < micro_batches.size(); ++i) {
        Remember(Plan(StepKind::kMicro, micro_batches[i], false), &before);
        TensorMap outputs = RunStep(StepKind::kMicro, micro_batches[i], lr,
                                    static_cast<int64_t>(i));
        loss += Loss(outputs);
        sums.Add(last_->step);
        if (result->cause.empty()) result->cause = NotFinite(outputs);
      }
      result->loss =
          static_cast<float>(loss / static_cast<double>(options_.grad_accum));
      return RunApply(sums, lr);
    } catch (...) {
      EraseSums(state_);
      for (const auto& [name, tensor] : before) state_[name] = tensor;
      throw;
    }
  }

  TensorMap RunApply(MicroSums sums, double lr) {
    PlanKey key{StepKind::kApply, false, {}, {}, std::move(sums)};
    auto known = FindPlan(key);
    if (known == keys_.end()) {
      PlannedStep apply;
      apply.step = BuildApplyGraph(source_, key.sums);
      last_ = &Keep(std::move(key), std::move(apply));
    } else {
      last_ = &*std::next(plans_.begin(), std::distance(keys_.begin(), known));
    }
    TensorMap feeds = {
        {last_->step.lr, Tensor::Scalar(static_cast<float>(lr))}};
    return last_->executor->Run(feeds, state_);
  }

  // The state entries that the plan reads, sharing memory. Entries that the
  // plan would add (a scale state that no training graph has made yet) stay out
  // of state_.
  TensorMap Borrow(const PlannedStep& planned) {
    TensorMap borrowed;
    for (const Value* value : planned.executor->plan().states) {
      auto it = state_.find(value->name);
      if (it != state_.end()) borrowed.insert(*it);
    }
    return borrowed;
  }

  // The first quantized tensor of the last graph that is not finite, for
  // people; "" if all are finite.
  std::string NotFinite(const TensorMap& outputs) const {
    const StepGraph& step = last_->step;
    if (step.amax.empty()) return "";
    const Tensor& amax = outputs.at(step.amax);
    for (int64_t i = 0; i < amax.size(); ++i) {
      if (!std::isfinite(amax.data<float>()[i])) {
        return step.fp8.labels[static_cast<size_t>(i)] + " is not finite";
      }
    }
    return "";
  }

  // Identifies the model for checkpoints: names, dtypes and shapes of all
  // inputs, outputs and parameters.
  std::string Fingerprint() const {
    std::string text;
    auto add = [&](const char* kind, const Value* value) {
      text += Concat(kind, " ", value->name, " ", Name(value->dtype), " ",
                     value->shape ? ToString(*value->shape) : "?", "\n");
    };
    for (const Value* value : model_.graph->inputs) add("input", value);
    for (const Value* value : model_.graph->outputs) add("output", value);
    for (const Value* value : model_.graph->Initializers()) {
      if (value->role == Role::kParameter) add("parameter", value);
      if (value->role == Role::kFrozen) add("frozen", value);
    }
    return Concat(std::hex, Hash(text));
  }

  TensorMap Weights() const {
    TensorMap weights;
    for (const Value* value : model_.graph->Initializers()) {
      if (value->role != Role::kNone) {
        weights[value->name] = state_.at(value->name);
      }
    }
    return weights;
  }

  SessionOptions options_;
  std::unique_ptr<ExecutionProvider> provider_;
  PassRunner runner_;
  TrainingModel model_;
  std::unique_ptr<Evaluator> evaluator_;
  std::shared_ptr<SharedArena> arena_;  // of all plans: only one runs at a time
  std::unique_ptr<Profiler> profiler_;
  StepSource source_;
  TensorMap state_;
  int64_t step_ = 0;
  int64_t skipped_ = 0;
  // Two lists in parallel, most recently used first.
  std::list<PlannedStep> plans_;
  std::list<PlanKey> keys_;
  PlannedStep* last_ = nullptr;
  std::set<std::string> sums_;  // names of the sums of micro steps
  // Whether source_.slots are those of this run's steps; until then, a
  // checkpoint's scales; a remark about what happened to them.
  bool laid_out_ = false;
  std::optional<ScaleState> restored_;
  std::string remark_;
  // The profiler names nodes of graphs whose plans may no longer exist.
  std::vector<std::shared_ptr<const Graph>> profiled_;
};

}  // namespace

std::unique_ptr<TrainingSession> TrainingSession::Create(
    const SessionOptions& options) {
  return std::make_unique<Session>(options);
}

}  // namespace onnx_fp8
