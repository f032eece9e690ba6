// SPDX-License-Identifier: Apache-2.0
#include "training/session/run_scales.h"

#include <utility>

#include "base/check.h"
#include "graph/fp8/scale_slots.h"

namespace onnx_fp8 {

RunScales::RunScales(StepSource* source, StateStore* state)
    : source_(*source), state_(*state) {}

bool RunScales::Begin(StepKind kind) {
  bool trains = kind == StepKind::kTrain || kind == StepKind::kMicro;
  if (!trains || laid_out_) return false;
  source_.slots.reset();
  return true;
}

std::string RunScales::LayOut(const StepGraph& step) {
  ScaleState fresh;
  fresh.slots = step.fp8.slots;
  for (ScaleSlot& slot : fresh.slots) slot.amax = nullptr;
  for (auto [name, tensor] : {std::pair{kScaleState, &fresh.scale},
                              {kHistoryState, &fresh.history}}) {
    // A checkpoint's scales are found by these names.
    const Value* own = source_.model->Find(name);
    Check(fresh.slots.empty() || !own || own->role == Role::kScale, "[",
          source_.model->file, "] expected no value named ", name,
          ", the name of the scales of a run: rename it in the model");
    const Value* value = step.graph->Find(name);
    if (value && value->role == Role::kScale) *tensor = value->data.Clone();
  }
  std::string remark;
  if (restored_) {
    remark = CarryScales(*restored_, &fresh);
    Erase(&state_.tensors());
  }
  if (fresh.scale.defined()) state_.Set(kScaleState, fresh.scale);
  if (fresh.history.defined()) state_.Set(kHistoryState, fresh.history);
  source_.slots = std::move(fresh.slots);
  restored_.reset();
  laid_out_ = true;
  return remark;
}

void RunScales::Adopt(ScaleState scales, bool same, bool measured) {
  source_.slots.reset();
  if (same) source_.slots = scales.slots;
  source_.new_scales = true;
  restored_.reset();
  if (measured) restored_ = std::move(scales);
  laid_out_ = false;
}

void RunScales::Erase(TensorMap* tensors) const {
  for (const char* name : {kScaleState, kHistoryState}) {
    if (!source_.model->Find(name)) tensors->erase(name);
  }
}

std::vector<ScaleInfo> RunScales::Infos() const {
  if (!source_.slots) return {};
  bool kept = state_.Has(kScaleState);
  return ScaleInfos(*source_.slots, kept ? state_.Host(kScaleState) : Tensor());
}

}  // namespace onnx_fp8
