// SPDX-License-Identifier: Apache-2.0
// The report of a step for the host: one vector of floats, so that one copy
// from the provider's memory is enough, at a time that suits the caller.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "graph/graph.h"
#include "onnx_fp8/session.h"
#include "training/step/step_graph.h"

namespace onnx_fp8 {

// Positions of the numbers in the vector; -1: not in it.
struct ReportLayout {
  std::string output;  // name of the vector in the graph; "": no report
  int loss = -1, counted = -1, grad_norm = -1, ok = -1, loss_scale = -1,
      update_amax = -1;
  int amaxes = -1;                  // the first of labels.size() amaxes
  std::vector<std::string> labels;  // names of tensors, for messages
  bool counts_labels = false;       // as StepGraph's
};

// Replaces the outputs loss, counted, grad_norm, ok, loss scale, update_amax
// and amax of a step by one output, their concatenation as float. Other outputs
// stay.
ReportLayout PackReport(const StepGraph& step, Graph& graph);

struct StepReport {
  std::optional<float> loss;
  float weight = 1;        // of the loss in the step's mean
  bool no_labels = false;  // no label of the batch counts
  float grad_norm = -1;
  float loss_scale = 0;    // 0: none
  float update_amax = -1;  // -1: not measured
  bool ok = true;
  std::string not_finite;  // label of the first infinite amax; "": none
};

// `report`: the value of the graph's output, on the host.
StepReport ReadReport(const ReportLayout& layout, const Tensor& report);

// The label of the first amax in `report`, from element `first` on, that is not
// finite; "": all are.
std::string NotFinite(const Tensor& report, int first,
                      const std::vector<std::string>& labels);

// Combines the reports of the graphs that one step has run, with the update
// last: the weighted mean of the losses of batches with labels, the norm, and
// the reason if the step was skipped. The caller fills in `step` and `remark`.
StepResult Summarize(const std::vector<StepReport>& reports);

// Makes graph outputs of gradients, each given with the parameter or input that
// it belongs to. `scale`: the factor that all gradients have, which is
// divided out; null: none.
void AddGradientOutputs(const std::vector<std::pair<Value*, Value*>>& pairs,
                        Value* scale, StepGraph* step);

}  // namespace onnx_fp8
