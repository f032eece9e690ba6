// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "onnx_fp8/session.h"
#include "onnx_fp8/tensor.h"
#include "providers/run/state_store.h"
#include "training/state/carry_scales.h"
#include "training/step/step_graph.h"

namespace onnx_fp8 {

// The kept scales of a session's run. Its first step lays out their slots,
// which all later graphs have (StepSource::slots). Scales of a checkpoint go on
// in them.
class RunScales {
 public:
  // `source` and `state` must outlive this.
  RunScales(StepSource* source, StateStore* state);

  // Call this before a graph of that kind is built. Whether it lays out the
  // slots; then LayOut follows.
  bool Begin(StepKind kind);
  // The slots of `step`, and their state. Returns a remark about what happened
  // to the scales of a checkpoint. Errors: a value of the model has the name of
  // that state.
  std::string LayOut(const StepGraph& step);

  // The scales of a checkpoint. `same`: its recipe is the session's; evaluation
  // uses its slots until a step has laid out this run's. `measured`: a step
  // measured them; otherwise the run lays out its own.
  void Adopt(ScaleState scales, bool same, bool measured);

  // Takes the state of scales out of `tensors`. A tensor of the model that
  // happens to have such a name stays.
  void Erase(TensorMap* tensors) const;

  std::vector<ScaleInfo> Infos() const;

 private:
  StepSource& source_;
  StateStore& state_;
  bool laid_out_ = false;
  std::optional<ScaleState> restored_;  // until then: a checkpoint's
};

}  // namespace onnx_fp8
