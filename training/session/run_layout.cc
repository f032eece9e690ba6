// SPDX-License-Identifier: Apache-2.0
#include "training/session/run_layout.h"

#include <utility>

#include "base/check.h"

namespace onnx_fp8 {

std::optional<std::vector<ScaleSlot>> RunLayout::Kept() const {
  std::optional<std::vector<ScaleSlot>> slots = layout_.slots;
  if (!slots || !state_.Has(kScaleState)) return slots;
  const Tensor scales = state_.Host(kScaleState);
  for (size_t i = 0; i < slots->size(); ++i) {
    (*slots)[i].scale = scales.data<float>()[i];
  }
  return slots;
}

Fp8Spec RunLayout::Counting(Fp8Spec spec) const {
  if (layout_.scales) spec.scales = *layout_.scales;
  return spec;
}

bool RunLayout::LaysOut(StepKind kind) const {
  return TrainsOnSamples(kind) && !laid_out_;
}

StepLayout RunLayout::For(StepKind kind) const {
  StepLayout layout = layout_;
  if (LaysOut(kind)) layout.slots.reset();
  return layout;
}

std::string RunLayout::LayOut(const StepGraph& step) {
  ScaleState fresh;
  fresh.slots = step.fp8.slots;
  for (ScaleSlot& slot : fresh.slots) slot.amax = nullptr;
  for (auto [name, tensor] : {std::pair{kScaleState, &fresh.scale},
                              {kHistoryState, &fresh.history}}) {
    // A checkpoint's scales are found by these names.
    const Value* own = model_.Find(name);
    Check(fresh.slots.empty() || !own || own->role == Role::kScale, "[",
          model_.file, "] expected no value named ", name,
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
  layout_.slots = std::move(fresh.slots);
  restored_.reset();
  laid_out_ = true;
  return remark;
}

void RunLayout::Adopt(ScaleState kept, bool same, bool measured,
                      std::optional<StaticScales> scales) {
  layout_.slots.reset();
  if (same) layout_.slots = kept.slots;
  layout_.new_scales = true;
  if (scales) layout_.scales = std::move(scales);
  restored_.reset();
  if (measured) restored_ = std::move(kept);
  laid_out_ = false;
}

bool RunLayout::UseKept() {
  bool measured = std::exchange(layout_.new_scales, false);
  return measured && !layout_.slots->empty();
}

StepLayout RunLayout::With(const StepGraph& step) const {
  StepLayout layout = layout_;
  if (!laid_out_) layout.slots = step.fp8.slots;
  if (!layout.splits) layout.splits = step.splits;
  for (ScaleSlot& slot : *layout.slots) slot.amax = nullptr;
  return layout;
}

void RunLayout::Erase(TensorMap* tensors) const {
  for (const char* name : {kScaleState, kHistoryState}) {
    if (!model_.Find(name)) tensors->erase(name);
  }
}

std::vector<ScaleInfo> RunLayout::Infos() const {
  if (!layout_.slots) return {};
  bool kept = state_.Has(kScaleState);
  return ScaleInfos(*layout_.slots, kept ? state_.Host(kScaleState) : Tensor());
}

}  // namespace onnx_fp8
