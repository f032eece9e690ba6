// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "onnx_fp8/session.h"
#include "providers/run/state_store.h"
#include "training/state/carry_scales.h"
#include "training/step/step_graph.h"

namespace onnx_fp8 {

// What the first steps of a session, or its checkpoint, lay out for all later
// graphs. Scales of a checkpoint go on in the slots that the first step lays
// out.
class RunLayout {
 public:
  // `model` and `state` must outlive this.
  RunLayout(const Graph* model, StateStore* state)
      : model_(*model), state_(*state) {}

  const StepLayout& get() const { return layout_; }

  // The slots with the numbers of their scales (ScaleSlot::scale); nullopt: no
  // step and no checkpoint has laid them out.
  std::optional<std::vector<ScaleSlot>> Kept() const;
  // `spec` with a checkpoint's static scales, where these replace its own.
  Fp8Spec Counting(Fp8Spec spec) const;

  // Whether a graph of that kind lays out the slots; LayOut follows when it is
  // built.
  bool LaysOut(StepKind kind) const;
  // The layout for a graph of that kind.
  StepLayout For(StepKind kind) const;

  // The slots of `step`, and their state. Returns a remark about what happened
  // to the scales of a checkpoint. Errors: a value of the model has the name of
  // that state.
  std::string LayOut(const StepGraph& step);

  // The scales of a checkpoint. `same`: its recipe is the session's; evaluation
  // uses its slots until a step has laid out this run's. `measured`: a step
  // measured them; otherwise the run lays out its own. `scales`: they replace
  // the static ones of the session.
  void Adopt(ScaleState kept, bool same, bool measured,
             std::optional<StaticScales> scales);

  // A step has measured all scales. Whether later graphs therefore differ.
  bool UseKept();

  // The layout for graphs after `step`, which may be the one that lays out.
  StepLayout With(const StepGraph& step) const;

  void Divide(const StepGraph& step) { layout_.splits = step.splits; }
  void Learn(const LossSpec& loss) { layout_.class_axis = loss.class_axis; }

  // Takes the state of scales out of `tensors`. A tensor of the model that
  // happens to have such a name stays.
  void Erase(TensorMap* tensors) const;

  std::vector<ScaleInfo> Infos() const;

 private:
  const Graph& model_;
  StateStore& state_;
  StepLayout layout_;
  bool laid_out_ = false;               // the slots, by a step of this run
  std::optional<ScaleState> restored_;  // until then: a checkpoint's
};

}  // namespace onnx_fp8
