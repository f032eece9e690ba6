// SPDX-License-Identifier: Apache-2.0
#include "cli/report/step_forecast.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

#include "base/check.h"
#include "cli/shapes.h"
#include "graph/op_facts.h"
#include "onnx_fp8/option_error.h"
#include "providers/report/memory_report.h"
#include "training/make_provider.h"
#include "training/step/paper_step.h"
#include "training/step/pipelines.h"
#include "training/step/place_state.h"
#include "training/step/step_graph.h"
#include "training/step/training_model.h"

namespace onnx_fp8 {
namespace {

using Shapes = std::map<std::string, Shape>;

// The shapes of one rank's inputs.
Shapes ShapesOfRank(const ForecastSpec& spec, const TrainingModel& model,
                    int64_t* samples) {
  const std::vector<InputInfo> inputs = model.Inputs();
  const DataLayout layout = LayOutData(inputs, model.loss, spec.data);
  const int64_t ranks = spec.mesh.data_ranks();
  if (layout.batch_size < ranks) {
    throw OptionError(Concat("`batch_size`: expected a sample for each of ",
                             ranks, " ranks, got ", layout.batch_size));
  }
  Check(ranks == 1 || !layout.fixed_batch, "[", spec.session.model,
        "] expected an open batch axis, whose samples the ranks share, got "
        "batches of ",
        layout.batch_size);
  *samples = (layout.batch_size + ranks - 1) / ranks;
  std::map<std::string, int64_t> axes = spec.axes;
  for (const InputInfo& input : inputs) {
    const DatasetInput& fed =
        *std::ranges::find(layout.inputs, input.name, &DatasetInput::name);
    if (fed.whole || input.shape.empty()) continue;
    if (input.shape[0] < 0) axes.emplace(AxisName(input, 0), *samples);
  }
  const Shapes shapes = ResolveShapes(inputs, axes);
  for (const InputInfo& input : inputs) {
    const Shape& shape = shapes.at(input.name);
    const auto open = std::ranges::find(shape, -1) - shape.begin();
    if (open == std::ssize(shape)) continue;
    throw OptionError(
        Concat("`shape`: expected ", AxisName(input, static_cast<size_t>(open)),
               "=N for the open axis of ", input.name, ", got none"));
  }
  return shapes;
}

bool Sends(const Node* node) { return node && IsCollective(*node); }

RankMemory MemoryOf(const PaperStep& paper) {
  const StepGraph& step = paper.step;
  const MemoryReport report =
      MakeMemoryReport(paper.plan, *step.graph, step.gradient_names);
  RankMemory memory;
  memory.parameters = report.Total(MemoryKind::kParameter);
  for (const auto& [name, bytes] : step.set_aside) memory.parameters += bytes;
  memory.outside = paper.outside;  // moments
  memory.optimizer = report.Total(MemoryKind::kOptimizerState) - memory.outside;
  memory.arena = paper.arena;
  for (const LiveValue& live : report.live) {
    const Value* value = step.graph->Find(live.name);  // null: a workspace
    const bool sent = value && (Sends(value->producer) ||
                                std::ranges::any_of(value->uses, Sends));
    if (value && value->role == Role::kWeightCopy) {
      memory.fp8_weights += live.bytes;
      continue;
    }
    switch (live.kind) {
      case MemoryKind::kParameter:
      case MemoryKind::kOptimizerState:
        break;
      case MemoryKind::kFp8State:
        memory.scales += live.bytes;
        break;
      case MemoryKind::kInput:
      case MemoryKind::kConstant:
      case MemoryKind::kOutput:
        memory.others += live.bytes;
        break;
      case MemoryKind::kParameterGradient:
        memory.gradients += live.bytes;
        break;
      case MemoryKind::kWorkspace:
        memory.workspaces += live.bytes;
        break;
      default:
        if (sent) {
          memory.communication += live.bytes;
        } else if (live.kind == MemoryKind::kSavedActivation) {
          memory.saved += live.bytes;
        }
    }
  }
  const size_t named = memory.gradients + memory.communication + memory.saved +
                       memory.workspaces;
  memory.temporaries = memory.arena - std::min(memory.arena, named);
  return memory;
}

// Numbers of the label, if it has a sequence axis; see CountTokens.
int64_t TokensOf(const Graph& graph, const std::string& label) {
  const Value* value = graph.Find(label);
  bool tokens = value && value->concrete() && IsInteger(value->dtype) &&
                value->rank() == 2 && value->dim(1) > 1;
  return tokens ? NumElements(*value->shape) : 0;
}

// Plans the step so that it fits into the memory of the forecast's GPU, if
// there is a limit. A forecast with kernels of the CPU has that limit, too.
PaperStep PlanToFit(const ForecastSpec& spec, const StepPlanner& plan,
                    StepForecast* forecast) {
  const GpuPeaks& gpu = spec.cluster.gpu;
  const std::optional<StepLimit> limit =
      StepLimitOf(spec.session, Device::kProvider,
                  [&] { return static_cast<size_t>(gpu.memory); });
  if (!limit) return plan({});
  PaperStep chosen;
  const MemoryFit fit = FitMemory(*limit, {gpu, spec.cluster.efficiency},
                                  spec.session, plan, &chosen);
  forecast->notes.push_back(fit.Text());
  if (!fit.fits()) forecast->notes.push_back(fit.Complaint());
  forecast->fit = fit;
  return chosen;
}

}  // namespace

StepForecast ForecastStep(const ForecastSpec& spec) {
  const SessionOptions& options = spec.session;
  CheckPlaces(options, Device::kProvider);
  PassRunner runner = MakePassRunner(options);
  const TrainingModel model =
      LoadTrainingModel(options, runner, ImportFor::kForecast);
  const std::unique_ptr<Evaluator> evaluator = MakeEvaluator();
  StepForecast forecast;
  forecast.notes = model.notes;
  const Shapes shapes = ShapesOfRank(spec, model, &forecast.samples);
  for (const ParameterInfo& parameter : model.Parameters()) {
    if (parameter.trained) forecast.trained += NumElements(parameter.shape);
  }
  const StepSource source =
      MakeStepSource(options, model, *evaluator, runner, spec.mesh);
  const ProviderKernels provider = KernelsOf(options.provider);
  const PaperStep paper = PlanToFit(
      spec,
      [&](const StepChoice& choice) {
        StepSource own = source;
        ApplyChoice(choice, &own);
        StepGraph step =
            BuildStepGraph(own, StepKind::kTrain, shapes, false,
                           ResolveValues(model.Inputs(), spec.values));
        forecast.tokens = TokensOf(*step.graph, model.loss.label);
        return PlanOnPaper(std::move(step), own, options, provider,
                           choice.execution);
      },
      &forecast);
  const StepGraph& step = paper.step;
  std::ranges::move(step.Remarks(), std::back_inserter(forecast.notes));
  if (!step.primary_weights.empty()) {
    forecast.notes.push_back(step.primary_weights);
  }
  forecast.memory = MemoryOf(paper);
  const std::string places = PlacesRemark(options, forecast.memory.outside);
  if (!places.empty()) forecast.notes.push_back(places);
  forecast.time = Simulate(paper.plan, spec.cluster,
                           step.graph->Find(step.gradient_names.seed));
  forecast.peak = options.dtype == DType::kFloat ? spec.cluster.gpu.fp32
                                                 : spec.cluster.gpu.narrow;
  return forecast;
}

}  // namespace onnx_fp8
