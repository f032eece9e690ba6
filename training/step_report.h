// SPDX-License-Identifier: Apache-2.0
//
// What a step tells the host is one vector of floats: one copy from the
// provider's memory, at a time that suits the caller.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "onnx_fp8/session.h"
#include "training/step_graph.h"

namespace onnx_fp8 {

// Where things are in the vector; -1: not in it.
struct ReportLayout {
  std::string output;  // its name in the graph; "": nothing is reported
  int loss = -1, grad_norm = -1, ok = -1;
  int amaxes = -1;                  // the first of labels.size()
  std::vector<std::string> labels;  // of the quantized tensors, for people
};

// Replaces the outputs loss, grad_norm, ok and amax of a step by one, their
// concatenation as float. Other outputs stay.
ReportLayout PackReport(const StepGraph& step, Graph& graph);

struct StepReport {
  std::optional<float> loss;
  float grad_norm = 0;
  bool ok = true;
  std::string not_finite;  // label of the first amax that is not; "": none
};

// `report`: the graph's output, on the host.
StepReport ReadReport(const ReportLayout& layout, const Tensor& report);

// Of the graphs that one step has run, the update last: the mean of the losses,
// the norm, and what kept the step from an update. `step` and `remark` are the
// caller's.
StepResult Summarize(const std::vector<StepReport>& reports);

}  // namespace onnx_fp8
