// SPDX-License-Identifier: Apache-2.0
#include "graph/fp8/scale_update.h"

#include "graph/builder.h"
#include "graph/needed_when.h"
#include "onnx_fp8/float8.h"

namespace onnx_fp8 {
namespace {

// An amax as a row; 0 if there is none.
Value* Row(Builder& b, Value* amax) {
  return amax ? b.Reshape(amax, {1})
              : b.Constant(Tensor::Zeros(DType::kFloat, {1}));
}

std::vector<Value*> SlotRows(Builder& b, const Fp8Plan& plan) {
  std::vector<Value*> rows;
  for (const ScaleSlot& slot : plan.slots) rows.push_back(Row(b, slot.amax));
  return rows;
}

}  // namespace

Value* AddScales(Graph& graph, Fp8Plan* plan) {
  if (!plan->scale) {
    plan->scale = graph.AddInitializer(graph.FreshName(kScaleState),
                                       Tensor::Zeros(DType::kFloat, {1}));
    plan->scale->role = Role::kScale;
  }
  return plan->scale;
}

void AddScaleState(Graph& graph, const Recipe& recipe, Fp8Plan* plan) {
  auto n = static_cast<int64_t>(plan->slots.size());
  std::vector<float> scales, q_max;
  for (const ScaleSlot& slot : plan->slots) {
    scales.push_back(slot.scale);
    q_max.push_back(Float8Max(slot.format));
  }
  Value* scale = AddScales(graph, plan);
  scale->data = Tensor::From<float>({n}, scales);
  scale->shape = Shape{n};
  if (!AnyDelayed(plan->slots)) return;
  plan->history = graph.AddInitializer(
      graph.FreshName(kHistoryState),
      Tensor::Zeros(DType::kFloat, {recipe.amax_history, n}));
  plan->history->role = Role::kScale;
  plan->q_max = graph.AddInitializer(graph.FreshName("fp8.q_max"),
                                     Tensor::From<float>({n}, q_max));
}

void DropIdleAmaxes(Graph& graph, const std::vector<const Value*>& roots,
                    Fp8Plan* plan) {
  NeededMap needed = NeededWhen(graph, roots);
  if (needed.empty()) return;
  Builder b(graph, "fp8.");
  auto drop = [&](Value*& amax) {
    if (!amax) return;
    const Conditions& conditions = ConditionsOf(needed, amax->producer);
    if (!conditions.empty()) {
      amax = Choose(b, conditions, amax, b.Scalar(0, amax));
    }
  };
  for (ScaleSlot& slot : plan->slots) drop(slot.amax);
  for (Value*& amax : plan->amaxes) drop(amax);
}

Value* AmaxVector(Graph& graph, const Fp8Plan& plan) {
  if (plan.labels.empty()) return nullptr;
  Builder b(graph, "fp8.");
  std::vector<Value*> rows = SlotRows(b, plan);
  for (Value* amax : plan.amaxes) rows.push_back(b.Reshape(amax, {1}));
  return b.Op("Concat", rows, {{"axis", int64_t{0}}});
}

Value* KeptAmaxes(Graph& graph, const Fp8Plan& plan) {
  Builder b(graph, "fp8.");
  std::vector<Value*> rows = SlotRows(b, plan);
  rows.push_back(plan.amaxes.empty()
                     ? Row(b, nullptr)
                     : b.Reshape(b.Op("Max", plan.amaxes), {1}));
  return b.Op("Concat", rows, {{"axis", int64_t{0}}});
}

void AttachScaleUpdate(Graph& graph, const Recipe& recipe, const Fp8Plan& plan,
                       Value* amax, Value* ok) {
  if (!AnyDelayed(plan.slots)) return;
  Builder b(graph, "fp8.");
  auto n = static_cast<int64_t>(plan.slots.size());
  if (amax->shape != Shape{n}) {
    amax = b.Op("Slice", {amax, b.Ints({0}), b.Ints({n})});
  }
  std::vector<Value*> next =
      b.Ops("UpdateScale", {amax, plan.history, plan.scale, plan.q_max, ok}, 2,
            {{"most_recent", int64_t{recipe.most_recent}},
             {"margin", static_cast<float>(recipe.margin)}},
            kDomain);
  Value* states[] = {plan.history, plan.scale};
  for (size_t i : {0, 1}) {
    graph.Rename(next[i], graph.FreshName(states[i]->name + ".next"));
    graph.state.push_back({states[i], next[i]});
  }
}

}  // namespace onnx_fp8
