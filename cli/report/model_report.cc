// SPDX-License-Identifier: Apache-2.0
#include "cli/report/model_report.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "base/available_memory.h"
#include "base/check.h"
#include "base/joined.h"
#include "cli/flags.h"
#include "cli/shapes.h"
#include "graph/builder.h"
#include "graph/node_notes.h"
#include "graph/onnx/written_file.h"
#include "graph/op_facts.h"
#include "graph/parameter_names.h"
#include "onnx_fp8/option_error.h"
#include "onnx_fp8/recipe_text.h"
#include "optimizers/optimizer.h"
#include "providers/ops/product_copies.h"
#include "providers/plan/plan.h"
#include "training/make_provider.h"
#include "training/state/masters.h"
#include "training/step/decay_note.h"
#include "training/step/fit_memory.h"
#include "training/step/hidden_matrices.h"
#include "training/step/paper_step.h"
#include "training/step/pipelines.h"
#include "training/step/place_state.h"
#include "training/step/static_scales.h"
#include "training/step/step_from_file.h"
#include "training/step/step_graph.h"
#include "training/step/training_model.h"
#include "training/step/trains_line.h"

namespace onnx_fp8 {
namespace {

using Shapes = std::map<std::string, Shape>;

constexpr char kStandInLoss[] = "onnx_fp8.stand_in_loss";

InputInfo Describe(const Value& value) {
  return {value.name, value.dtype, value.shape.value_or(Shape{}),
          value.axis_names};
}

const char* RoleName(Role role) {
  switch (role) {
    case Role::kParameter:
      return "trained";
    case Role::kFrozen:
      return "frozen";
    default:
      return IsState(role) ? "state" : "constant";
  }
}

// A gradient is a float if its weight is kept as a bfloat16.
size_t GradientBytes(const Value& weight) {
  return static_cast<size_t>(NumElements(*weight.shape)) *
         ByteSize(DTypeOfWeight(weight));
}

MemoryForecast Forecast(const StatePlaces& places, const PaperStep& paper) {
  MemoryForecast memory;
  const StepGraph& step = paper.step;
  const Plan& plan = paper.plan;
  const Graph& graph = *step.graph;
  std::unordered_set<const Value*> bound;
  for (const StateBinding& binding : graph.state) bound.insert(binding.state);
  std::set<std::string> trained(step.trained.begin(), step.trained.end());
  for (const Value* value : graph.Initializers()) {
    bool parameter = value->role == Role::kParameter ||
                     value->role == Role::kFrozen ||
                     value->role == Role::kCorrection;
    size_t* kind = nullptr;
    if (value->role == Role::kWeightCopy) {
      kind = &memory.fp8_weights;
    } else if (parameter) {
      kind = &memory.parameters;
      if (trained.contains(value->name)) {
        memory.gradients += GradientBytes(*value);
      }
    } else if (value->role == Role::kScale || value == step.fp8.q_max) {
      kind = &memory.scaling;
    } else if (value->role == Role::kAverage) {
      kind = &memory.averages;
    } else if (value->role == Role::kMoment ||
               (bound.contains(value) && IsFloat(value->dtype))) {
      kind = &memory.moments;
    }
    if (!kind) continue;
    const size_t bytes = BytesOf(*value);
    const bool outside = places.IsOutside(value->name, bytes);
    (outside ? memory.outside : *kind) += bytes;
  }
  for (const auto& [name, bytes] : step.set_aside) {
    const bool outside = places.IsOutside(name, bytes);
    (outside ? memory.outside : memory.parameters) += bytes;
  }
  memory.arena = paper.arena;
  memory.naive = plan.naive_bytes;
  std::vector<MemoryKind> kinds = TenantKinds(plan, graph, step.gradient_names);
  for (size_t i = 0; i < kinds.size(); ++i) {
    size_t bytes = plan.tenants[i].bytes;
    if (kinds[i] == MemoryKind::kSavedActivation) memory.saved += bytes;
    if (kinds[i] == MemoryKind::kFp8Copy) memory.fp8_copies += bytes;
  }
  return memory;
}

// Adds the time of its own life to `seconds`.
class Stopwatch {
 public:
  explicit Stopwatch(double* seconds) : seconds_(*seconds) {}
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;
  ~Stopwatch() {
    seconds_ += std::chrono::duration<double>(Clock::now() - begin_).count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  double& seconds_;
  Clock::time_point begin_ = Clock::now();
};

class Reporter {
 public:
  Reporter(const SessionOptions& options, const GpuPeaks* gpu, const Mesh& mesh)
      : options_(options),
        gpu_(gpu),
        mesh_{.tp = mesh.tp},
        provider_(KernelsOf(options.provider)),
        evaluator_(MakeEvaluator()),
        runner_(MakePassRunner(options)) {
    CheckPlaces(options, device());
    Stopwatch stopwatch(&report_.seconds.read);
    ImportReport import;
    model_.graph = ImportModel(options, ImportFor::kReport, runner_, &import);
    written_ = import.written;
    model_.lora = import.lora;
    model_.adapters = std::move(import.adapters);
    if (!import.batch_norm_note.empty()) {
      report_.notes.push_back(import.batch_norm_note);
    }
    std::ranges::move(import.notes, std::back_inserter(report_.notes));
    initializers_ = std::move(import.initializers);
    if (import.loss) options_.loss.kind = "output:" + import.loss->output;
    DescribeInterface();
    if (IsStep(written_)) {
      OpenStep();
    } else {
      if (written_ == Written::kForward) TrainNothingOfOurs();
      model_.names = NameParameters(*model_.graph);
      report_.notes.push_back(TrainsLine(initializers_, {}));
      uses_ = UsesThatDecide(options_.optimizer, *model_.graph);
      const std::string decay =
          DecayNote(options_.optimizer, *model_.graph, model_.names);
      if (!decay.empty()) report_.notes.push_back(decay);
      taken_ = TakenByOptimizer(options_.optimizer, options_.loss,
                                *model_.graph, model_.names);
      const std::string taken =
          TakenNote(options_.optimizer, taken_, model_.names);
      if (!taken.empty()) report_.notes.push_back(taken);
    }
    if (!options.scales.empty())
      model_.scales = ReadStaticScales(options.scales);
  }

  ModelReport Run(const std::map<std::string, int64_t>& axes,
                  const InputValues& values) {
    DescribeModel();
    values_ = ResolveValues(report_.inputs, values);
    Shapes shapes = ResolveShapes(report_.inputs, axes);
    if (written_ != Written::kNo && !model_.step) {
      report_.notes.push_back(DescribeWritten(*model_.graph, written_) +
                              ": it can't be trained, and there is no forecast "
                              "of that; what follows is one run of it");
      options_.loss.kind.clear();
    } else if (options_.loss.kind.empty()) {
      AddStandInLoss();
    }
    FindOpenAxes(shapes);
    if (report_.open_axes.empty()) {
      Closed(shapes);
    } else {
      if (!options_.memory.empty() || RecomputesAutomatically(options_)) {
        report_.notes.push_back(
            "`memory` compares nothing: the size of a step depends on " +
            Joined(report_.open_axes) + ", so it needs `shape`");
      }
      Open(shapes);
    }
    NoteRecipes();
    report_.passes = runner_.seconds();
    for (std::string& note : report_.notes) note = InFlags(note);
    for (InitializerRow& row : report_.initializers) {
      row.reason = InFlags(row.reason);
    }
    return std::move(report_);
  }

 private:
  void NoteRecipes() {
    std::set<std::string> seen;
    auto add = [&](const Recipe& recipe) {
      if (!seen.insert(RecipeText(recipe)).second) return;
      for (const std::string& note : RecipeNotes(recipe)) {
        report_.notes.push_back("the recipe " + RecipeText(recipe) + ": " +
                                note);
      }
    };
    add(options_.recipe);
    for (const auto& [glob, recipe] : options_.filter.recipes) add(recipe);
  }

  // To the rule, bounds of the scales look like weights.
  void TrainNothingOfOurs() {
    for (InitializerReport& row : initializers_) {
      bool ours = RoleOfName(row.value->name) == Role::kScale;
      if (!ours || row.value->role != Role::kParameter) continue;
      row.value->role = Role::kNone;
      row.reason = "constant: of the file that `rewrite()` wrote";
    }
  }

  // Before a step becomes a session's model: its learning rate is an input.
  void DescribeInterface() {
    for (const Value* value : model_.graph->inputs) {
      report_.inputs.push_back(Describe(*value));
    }
    const auto state = NewState(*model_.graph);
    for (const Value* value : model_.graph->outputs) {
      if (!state.contains(value)) report_.outputs.push_back(Describe(*value));
    }
  }

  void OpenStep() {
    std::unordered_map<const Value*, const Value*> next;
    for (const StateBinding& b : model_.graph->state)
      next.emplace(b.state, b.next);
    for (const Value* value : model_.graph->Initializers()) {
      auto known = next.find(value);
      AddStateRow(*value, known == next.end() ? nullptr : known->second);
    }
    try {
      model_.step = OpenFileStep(*model_.graph, &options_);
      model_.names = model_.step->notes.names;
      report_.notes.push_back(DescribeWritten(*model_.graph, written_) +
                              ": training goes on with it");
    } catch (const OptionError&) {
      throw;
    } catch (const Error& error) {
      report_.notes.push_back(error.what());
    }
  }

  // `next`: the value that replaces it after a run, or null.
  void AddStateRow(const Value& value, const Value* next) {
    if (value.role == Role::kNone) return;
    InitializerRow row{
        .name = value.name,
        .role = IsState(value.role) ? Name(value.role) : RoleName(value.role),
        .dtype = value.dtype,
        .shape = *value.shape,
        .bytes = value.data.bytes()};
    if (next) row.next = next->name;
    row.reason = row.next.empty() ? "no run of this file changes it"
                                  : "each run replaces it by " + row.next;
    report_.initializers.push_back(row);
  }

  void DescribeModel() {
    for (InitializerRow& row : report_.initializers) {
      if (model_.names.contains(row.name))
        row.fqn = model_.names.at(row.name).fqn;
    }
    for (const InitializerReport& row : initializers_) {
      bool tied = !row.tied_to.empty();
      auto known = model_.names.find(row.name);
      bool named = tied || known != model_.names.end();
      ParameterName torch = tied || !named ? row.torch : known->second;
      report_.initializers.push_back(
          {.name = row.name,
           .fqn = named ? torch.fqn : "",
           .role = tied ? "tied" : RoleName(row.value->role),
           .reason = row.reason,
           .remark = RemarkOf(row, named ? torch : ParameterName{}),
           .dtype = row.data.dtype(),
           .shape = row.data.shape(),
           .bytes = row.data.bytes()});
    }
  }

  // What is known of its name, and a weight decay that not all weights have.
  std::string RemarkOf(const InitializerReport& row,
                       const ParameterName& torch) const {
    const OptimizerSpec& spec = options_.optimizer;
    if (row.value->role != Role::kParameter) return torch.remark;
    std::vector<std::string> words;
    if (!torch.remark.empty()) words.push_back(torch.remark);
    const auto it = uses_.find(row.value->name);
    const WeightUse use = it == uses_.end() ? WeightUse::kLayer : it->second;
    const double decay =
        DecayOf(spec, torch.fqn, row.name, *row.value->shape, use);
    if (decay != WeightDecayOf(spec)) {
      words.push_back(
          Concat("weight decay ", decay,
                 it == uses_.end() ? "" : Concat(" (", Name(use), ")")));
    }
    auto taken = taken_.find(row.name);
    if (taken != taken_.end() && taken->second != TakenAs::kMatrix) {
      words.push_back(
          Concat("takes ", RestOf(spec), " (", Reason(taken->second), ")"));
    }
    std::string text;
    for (const std::string& word : words) {
      text += (text.empty() ? "" : "; ") + word;
    }
    return text;
  }

  void AddStandInLoss() {
    for (Value* output : model_.graph->outputs) {
      if (!IsFloat(output->dtype)) continue;
      Node* sum = model_.graph->AddNode("ReduceSum", {output}, {kStandInLoss},
                                        {{"keepdims", int64_t{0}}});
      sum->out(0)->dtype = output->dtype;
      sum->out(0)->shape = Shape{};
      model_.graph->outputs.push_back(sum->out(0));
      options_.loss.kind = std::string("output:") + kStandInLoss;
      report_.notes.push_back(
          "no `loss` is given: roles and memory are those "
          "of training with the sum of the output " +
          output->name);
      return;
    }
  }

  // An open axis without a name gets the name by which --shape knows it.
  void FindOpenAxes(Shapes& shapes) {
    for (InputInfo& input : report_.inputs) {
      const Shape& shape = shapes.at(input.name);
      input.axis_names.resize(shape.size());
      for (size_t i = 0; i < shape.size(); ++i) {
        if (shape[i] >= 0) continue;
        std::string& name = input.axis_names[i];
        name = AxisName(input, i);
        if (std::ranges::find(report_.open_axes, name) ==
            report_.open_axes.end()) {
          report_.open_axes.push_back(name);
        }
      }
    }
  }

  StepSource Source() {
    model_.loss = options_.loss;
    return MakeStepSource(options_, model_, *evaluator_, runner_, mesh_);
  }

  StepGraph Build(const Shapes& shapes, StepSource source) {
    Stopwatch stopwatch(&report_.seconds.step_graph);
    StepKind trains =
        model_.step && model_.step->apply ? StepKind::kMicro : StepKind::kTrain;
    if (!options_.loss.kind.empty()) {
      try {
        return BuildStepGraph(source, trains, shapes, false, values_);
      } catch (const Error& error) {
        // The forward part may still be valid.
        source.loss.kind.clear();
        StepGraph forward =
            BuildStepGraph(source, StepKind::kEval, shapes, false, values_);
        report_.notes.push_back(
            std::string("the model can't be trained as it is, what follows is "
                        "its forward half: ") +
            error.what());
        options_.loss.kind.clear();
        return forward;
      }
    }
    return BuildStepGraph(source, StepKind::kEval, shapes, false, values_);
  }

  std::string Fqn(const std::string& initializer) const {
    auto it = model_.names.find(initializer);
    return it == model_.names.end() ? initializer : it->second.fqn;
  }

  void AddGemm(const GemmDecision& d, SizeText m, SizeText k, SizeText n) {
    GemmReport row{.node = d.node,
                   .module = d.module,
                   .fqn = Fqn(d.fqn),
                   .role = Name(d.gemm.role),
                   .m = m,
                   .k = k,
                   .n = n,
                   .fp8 = d.fp8,
                   .reason = d.reason,
                   .speedup = d.speedup};
    if (d.fp8) row.recipe = RecipeText(d.recipe);
    auto pad = [&](const char* name, const SizeText& size) {
      bool fits = size.value < 0 || size.value % d.alignment() == 0;
      if (d.fp8 && !fits) row.padding += name;
    };
    pad("k", k);
    pad("n", n);
    report_.gemms.push_back(row);
  }

  // A step in a file has no decisions, only products: the ones of its first
  // graph, in which nothing runs again.
  void AddProducts(const Graph& graph) {
    if (!model_.step || !report_.gemms.empty()) return;
    auto size = [](int64_t value) {
      return SizeText{value, std::to_string(value)};
    };
    for (const Node& node : graph.nodes()) {
      bool fp8 = FactsOf(node).kind == OpKind::kScaledProduct;
      bool product = fp8 || FactsOf(node).kind == OpKind::kProduct;
      std::string role = NodeNote(node, "role");
      if (!product || role.empty()) continue;
      const Value& y = *node.out(0);
      int64_t m = NumElements(*y.shape) / std::max<int64_t>(y.dim(-1), 1);
      int64_t k = NumElements(*node.in(0)->shape) / std::max<int64_t>(m, 1);
      report_.gemms.push_back({.node = node.Where(),
                               .fqn = NodeNote(node, "fqn"),
                               .role = role,
                               .m = size(m),
                               .k = size(k),
                               .n = size(y.dim(-1)),
                               .fp8 = fp8,
                               .reason = "in the file",
                               .recipe = NodeNote(node, "recipe")});
    }
  }

  void AddLayers(const StepGraph& step) {
    report_.layers = step.layers;
    report_.divides_tokens = step.divides_tokens;
    report_.whole_tokens = step.whole_tokens;
    for (LayerSplit& layer : report_.layers) layer.weight = Fqn(layer.weight);
  }

  // The device that runs the step of this report.
  Device device() const { return gpu_ ? Device::kProvider : provider_.device; }

  // Plans the step so that it fits; nullopt: there is no limit.
  std::optional<PaperStep> PlanToFit(const Shapes& shapes,
                                     const StepSource& source) {
    const std::optional<StepLimit> limit =
        StepLimitOf(options_, device(), [&]() -> size_t {
          if (gpu_) return static_cast<size_t>(gpu_->memory);
          return provider_.device == Device::kHost ? AvailableMemory() : 0;
        });
    if (!limit) return std::nullopt;
    const Hardware hardware =
        gpu_ ? Hardware{*gpu_} : HardwareOf(provider_.device);
    PaperStep chosen;
    const MemoryFit fit = FitMemory(
        *limit, hardware, options_,
        [&](const StepChoice& choice) {
          StepSource own = source;
          ApplyChoice(choice, &own);
          StepGraph step = Build(shapes, own);
          AddProducts(*step.graph);
          return Planned(std::move(step), own, choice.execution);
        },
        &chosen);
    report_.notes.push_back(fit.Text());
    if (!fit.fits()) report_.notes.push_back(fit.Complaint());
    return chosen;
  }

  PaperStep Planned(StepGraph step, const StepSource& source,
                    const ExecutionChoice& execution = {}) {
    Stopwatch stopwatch(&report_.seconds.plan);
    return PlanOnPaper(std::move(step), source, options_, provider_, execution);
  }

  void Closed(const Shapes& shapes) {
    const StepSource source = Source();
    std::optional<PaperStep> paper;
    try {
      paper = PlanToFit(shapes, source);
    } catch (const OptionError&) {
      throw;
    } catch (const Error&) {
      // The plan itself tells it below.
    }
    StepGraph step;
    if (!paper) {
      step = Build(shapes, source);
      AddProducts(*step.graph);
    }
    AddStep(paper ? paper->step : step);
    if (written_ != Written::kNo && !model_.step) return;
    try {
      if (!paper) paper = Planned(std::move(step), source);
      AddPlan(*paper);
    } catch (const Error& error) {
      report_.notes.push_back(std::string("no memory forecast: ") +
                              error.what());
    }
  }

  void AddStep(const StepGraph& step) {
    AddLayers(step);
    for (const std::string& note : step.Remarks()) {
      report_.notes.push_back(note);
    }
    report_.specialize = step.specialized;
    NoteUnread(step.specialized);
    for (const GemmDecision& d : step.fp8.decisions) {
      auto size = [](int64_t value) {
        return SizeText{value, std::to_string(value)};
      };
      AddGemm(d, size(d.gemm.m), size(d.gemm.k), size(d.gemm.n));
    }
  }

  void AddPlan(const PaperStep& paper) {
    const StepGraph& step = paper.step;
    if (!step.primary_weights.empty()) {
      report_.notes.push_back(step.primary_weights);
    }
    if (provider_.device != Device::kHost) AddCopies(*step.graph);
    report_.memory = Forecast(PlacesOnPaper(options_, *model_.graph), paper);
    const std::string places = PlacesRemark(options_, report_.memory->outside);
    if (!places.empty()) report_.notes.push_back(places);
    report_.memory_report =
        MakeMemoryReport(paper.plan, *step.graph, step.gradient_names);
    if (gpu_) {
      report_.roofline = Roofline(*step.graph, provider_.kernels, *gpu_);
    }
  }

  // A row stands for all products of one layer and role, and lists all their
  // copies.
  void AddCopies(const Graph& graph) {
    std::map<std::pair<std::string, std::string>, std::set<std::string>> all;
    for (const Node& node : graph.nodes()) {
      std::string copies = ProductCopies(node);
      if (copies.empty()) continue;
      all[{Fqn(NodeNote(node, "fqn")), NodeNote(node, "role")}].insert(copies);
    }
    for (GemmReport& row : report_.gemms) {
      auto copies = all.find({row.fqn, row.role});
      if (!row.fp8 || copies == all.end()) continue;
      for (const std::string& text : copies->second) {
        row.copies += (row.copies.empty() ? "" : "; ") + text;
      }
    }
  }

  void NoteUnread(const SpecializeReport& specialized) {
    std::set<std::string> unread(specialized.unread.begin(),
                                 specialized.unread.end());
    for (InitializerRow& row : report_.initializers) {
      if (!unread.contains(row.name)) continue;
      row.role = "unused";
      row.reason = "unused: " + UnreadReason(specialized);
    }
  }

  // Builds twice, with two sets of small sizes in place of the open axes; sizes
  // that differ between the two builds depend on the axes.
  void Open(const Shapes& shapes) {
    std::map<std::string, int64_t> at_a, at_b;
    int64_t a = 2;
    for (const std::string& axis : report_.open_axes) {
      at_a[axis] = a;
      at_b[axis] = a + 1;
      a += 2;
    }
    StepSource source = Source();
    source.fp8.any_m = true;  // the shapes are invented
    try {
      StepGraph first = Build(Filled(shapes, at_a), source);
      StepGraph second = Build(Filled(shapes, at_b), source);
      AddLayers(first);
      const auto& x = first.fp8.decisions;
      const auto& y = second.fp8.decisions;
      Check(x.size() == y.size(), "the graph's structure depends on them");
      for (size_t i = 0; i < x.size(); ++i) {
        auto size = [&](int64_t p, int64_t q) {
          return Generalize(p, q, at_a, at_b);
        };
        AddGemm(x[i], size(x[i].gemm.m, y[i].gemm.m),
                size(x[i].gemm.k, y[i].gemm.k), size(x[i].gemm.n, y[i].gemm.n));
      }
    } catch (const Error& error) {
      report_.gemms.clear();
      report_.notes.push_back(
          std::string("no table of matrix products without sizes of the open "
                      "axes: ") +
          error.what());
    }
  }

  Shapes Filled(Shapes shapes, const std::map<std::string, int64_t>& sizes) {
    for (const InputInfo& input : report_.inputs) {
      Shape& shape = shapes.at(input.name);
      for (size_t i = 0; i < shape.size(); ++i) {
        if (shape[i] < 0) shape[i] = sizes.at(input.axis_names[i]);
      }
    }
    return shapes;
  }

  SessionOptions options_;
  const GpuPeaks* gpu_;
  Mesh mesh_;
  ProviderKernels provider_;
  std::unique_ptr<Evaluator> evaluator_;
  PassRunner runner_;
  TrainingModel model_;  // its step is null: the file is none, or unfit
  Written written_ = Written::kNo;
  std::vector<InitializerReport> initializers_;
  std::map<std::string, WeightUse> uses_;  // if they decide the decay
  std::map<std::string, TakenAs> taken_;   // see TakenByOptimizer
  InputValues values_;
  ModelReport report_;
};

}  // namespace

SizeText Generalize(int64_t a, int64_t b,
                    const std::map<std::string, int64_t>& at_a,
                    const std::map<std::string, int64_t>& at_b) {
  if (a == b) return {a, std::to_string(a)};
  std::vector<std::string> axes;
  for (const auto& [axis, size] : at_a) axes.push_back(axis);
  size_t subsets = size_t{1} << std::min<size_t>(axes.size(), 8);
  for (size_t subset = 1; subset < subsets; ++subset) {
    int64_t product_a = 1;
    int64_t product_b = 1;
    std::string text;
    for (size_t i = 0; i < axes.size() && i < 8; ++i) {
      if (!(subset >> i & 1)) continue;
      product_a *= at_a.at(axes[i]);
      product_b *= at_b.at(axes[i]);
      text += (text.empty() ? "" : "·") + axes[i];
    }
    bool fits = a % product_a == 0 && b % product_b == 0 &&
                a / product_a == b / product_b;
    if (!fits) continue;
    int64_t factor = a / product_a;
    return {-1, factor == 1 ? text : Concat(factor, "·", text)};
  }
  return {-1, "?"};
}

ModelReport MakeModelReport(const SessionOptions& options,
                            const std::map<std::string, int64_t>& axes,
                            const InputValues& values, const GpuPeaks* gpu,
                            const Mesh& mesh) {
  return Reporter(options, gpu, mesh).Run(axes, values);
}

}  // namespace onnx_fp8
