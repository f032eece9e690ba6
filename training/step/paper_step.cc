// SPDX-License-Identifier: Apache-2.0
#include "training/step/paper_step.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "training/step/pipelines.h"
#include "training/step/place_state.h"

namespace onnx_fp8 {

size_t FloatMoments(const Plan& plan) {
  size_t bytes = 0;
  for (const Value* value : plan.states) {
    const bool kept = value->role == Role::kMoment;
    if (kept && value->dtype == DType::kFloat) bytes += BytesOf(*value);
  }
  return bytes;
}

PaperStep PlanOnPaper(StepGraph step, const StepSource& source,
                      const SessionOptions& options,
                      const ProviderKernels& provider,
                      const ExecutionChoice& execution) {
  PaperStep paper;
  paper.step = std::move(step);
  Graph& graph = *paper.step.graph;
  AddReport(paper.step, *source.runner);
  FitToKernels(graph, provider.kernels, options, *source.evaluator,
               *source.runner, execution);
  const auto plan_of = [&](Graph& planned) {
    return MakePlan(planned, provider.kernels, provider.device);
  };
  const std::shared_ptr<Graph> maker =
      KeepPrimaryWeights(source, provider.kernels, &paper.step);
  paper.plan = plan_of(graph);
  paper.arena = paper.plan.arena_bytes;
  if (maker) paper.arena = std::max(paper.arena, plan_of(*maker).arena_bytes);
  std::map<std::string, size_t> state = paper.step.set_aside;
  for (const Value* value : paper.plan.states) {
    state[value->name] = BytesOf(*value);
  }
  const StatePlaces places = PlacesOnPaper(options, *source.model);
  for (const auto& [name, bytes] : state) {
    const bool outside = places.IsOutside(name, bytes);
    (outside ? paper.outside : paper.state) += bytes;
  }
  for (const auto* values :
       {&paper.plan.feeds, &paper.plan.constants, &paper.plan.fetched}) {
    for (const Value* value : *values) paper.others += BytesOf(*value);
  }
  paper.moments = FloatMoments(paper.plan);
  paper.is_in_file = source.step != nullptr;
  return paper;
}

}  // namespace onnx_fp8
