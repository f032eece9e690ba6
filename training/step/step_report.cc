// SPDX-License-Identifier: Apache-2.0
#include "training/step/step_report.h"

#include <cmath>
#include <limits>

#include "graph/builder.h"
#include "training/step/session_checks.h"

namespace onnx_fp8 {

ReportLayout PackReport(const StepGraph& step, Graph& graph) {
  Builder b(graph, "report.");
  ReportLayout layout;
  std::vector<Value*> parts;
  int64_t size = 0;
  auto add = [&](const std::string& name, int* at) {
    if (name.empty()) return;
    Value* value = graph.Find(name);
    int64_t n = NumElements(*value->shape);
    *at = static_cast<int>(size);
    size += n;
    Value* part =
        value->dtype == DType::kFloat ? value : b.Cast(value, DType::kFloat);
    parts.push_back(b.Reshape(part, {n}));
    std::erase(graph.outputs, value);
  };
  add(step.loss, &layout.loss);
  layout.counts_labels = step.counts_labels;
  add(step.counted, &layout.counted);
  add(step.grad_norm, &layout.grad_norm);
  add(step.ok, &layout.ok);
  add(step.loss_scale, &layout.loss_scale);
  add(step.update_amax, &layout.update_amax);
  add(step.amax, &layout.amaxes);
  if (layout.amaxes >= 0) layout.labels = step.fp8.labels;
  if (parts.empty()) return layout;
  Value* report = b.Op("Concat", parts, {{"axis", int64_t{0}}});
  graph.outputs.push_back(report);
  layout.output = report->name;
  return layout;
}

StepReport ReadReport(const ReportLayout& layout, const Tensor& report) {
  auto at = [&](int i) { return report.data<float>()[i]; };
  StepReport read;
  if (layout.loss >= 0) read.loss = at(layout.loss);
  read.no_labels = layout.counts_labels && read.loss && std::isnan(*read.loss);
  if (layout.counted >= 0) read.weight = at(layout.counted);
  if (layout.grad_norm >= 0) read.grad_norm = at(layout.grad_norm);
  if (layout.loss_scale >= 0) read.loss_scale = at(layout.loss_scale);
  if (layout.update_amax >= 0) read.update_amax = at(layout.update_amax);
  if (layout.ok >= 0) read.ok = at(layout.ok) != 0;
  if (layout.amaxes >= 0) {
    read.not_finite = NotFinite(report, layout.amaxes, layout.labels);
  }
  return read;
}

std::string NotFinite(const Tensor& report, int first,
                      const std::vector<std::string>& labels) {
  const float* amaxes = report.data<float>() + first;
  for (size_t i = 0; i < labels.size(); ++i) {
    if (!std::isfinite(amaxes[i])) return labels[i];
  }
  return "";
}

StepResult Summarize(const std::vector<StepReport>& reports) {
  StepResult result;
  double sum = 0, weights = 0;
  int losses = 0;
  bool no_labels = false;
  for (const StepReport& report : reports) {
    no_labels |= report.no_labels;
    if (report.loss && !report.no_labels) {
      sum += double{*report.loss} * double{report.weight};
      weights += double{report.weight};
      ++losses;
    }
    if (result.cause.empty() && !report.not_finite.empty()) {
      result.cause = report.not_finite + " is not finite";
    }
  }
  result.loss = static_cast<float>(sum / weights);
  result.grad_norm = reports.back().grad_norm;
  result.loss_scale = reports.back().loss_scale;
  result.update_amax = reports.back().update_amax;
  result.skipped = !reports.back().ok;
  // A batch without labels has gradients of zero: this NaN is another one.
  if (no_labels && result.skipped && !std::isfinite(result.grad_norm)) {
    result.loss = std::numeric_limits<float>::quiet_NaN();
  }
  if (!result.skipped) {
    result.cause.clear();
  } else if (result.cause.empty() && no_labels && losses == 0 &&
             std::isfinite(result.grad_norm)) {
    result.cause = kNoLabelCounts;
  } else if (result.cause.empty()) {
    result.cause = std::isfinite(result.loss) ? "a gradient is not finite"
                                              : "the loss is not finite";
  }
  return result;
}

void AddGradientOutputs(const std::vector<std::pair<Value*, Value*>>& pairs,
                        Value* scale, StepGraph* step) {
  Graph& graph = *step->graph;
  Builder b(graph, "loss_scale.");
  Value* inverse = scale ? b.Op("Reciprocal", {scale}) : nullptr;
  for (auto [value, gradient] : pairs) {
    if (inverse) gradient = b.Mul(gradient, b.Cast(inverse, gradient->dtype));
    // Two values may share one gradient; each gets an output of its own.
    Node* node = graph.AddNode("Identity", {gradient},
                               {graph.FreshName("grad." + value->name)});
    Value* named = node->out(0);
    named->dtype = gradient->dtype;
    named->shape = gradient->shape;
    graph.outputs.push_back(named);
    auto& names = value->is_input ? step->input_gradients : step->gradients;
    names[named->name] = value->name;
  }
}

}  // namespace onnx_fp8
