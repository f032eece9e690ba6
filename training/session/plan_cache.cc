// SPDX-License-Identifier: Apache-2.0
#include "training/session/plan_cache.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "graph/same_graph.h"
#include "training/step/loss.h"

namespace onnx_fp8 {

std::map<std::string, Shape> ShapesOf(const Graph& graph,
                                      const TensorMap& feeds,
                                      const std::string& model) {
  std::map<std::string, Shape> shapes;
  for (const Value* input : graph.inputs) {
    auto it = feeds.find(input->name);
    Check(it != feeds.end(), "[", model, "] expected data for input \"",
          input->name, "\", got none");
    shapes[input->name] = it->second.shape();
  }
  return shapes;
}

std::optional<LabelType> LabelOf(const Graph& graph, const LossSpec& loss,
                                 const TensorMap& feeds) {
  auto label = feeds.find(loss.label);
  bool reads = FindLoss(loss.kind) && label != feeds.end();
  if (!reads || graph.Find(loss.label)) return std::nullopt;
  return LabelType{label->second.dtype(), label->second.shape()};
}

bool PlanKey::Fits(const PlanKey& wanted) const {
  return kind == wanted.kind && input_gradients == wanted.input_gradients &&
         shapes == wanted.shapes && sums == wanted.sums &&
         extras == wanted.extras && has_loss == wanted.has_loss &&
         label == wanted.label && averages == wanted.averages &&
         std::ranges::includes(wanted.values, values);
}

Quantizer::Quantizer(std::shared_ptr<const Graph> graph,
                     std::unique_ptr<Executor> executor)
    : graph_(std::move(graph)), executor_(std::move(executor)) {
  executor_->set_reuses_outputs(true);
}

const TensorMap& Quantizer::Copies(TensorMap& state) {
  if (!made_) copies_ = executor_->Run({}, state);
  made_ = true;
  return copies_;
}

void Quantizer::Forget() {
  copies_.clear();
  made_ = false;
}

TensorMap PlannedStep::Known(const TensorMap& feeds) const {
  TensorMap known;
  for (const Value* input : step.graph->inputs) {
    auto it = feeds.find(input->name);
    if (it != feeds.end()) known.insert(*it);
  }
  return known;
}

const PlannedStep* PlanCache::Largest() const {
  auto bytes = [](const PlannedStep& planned) {
    return planned.executor->plan().arena_bytes;
  };
  auto largest = std::ranges::max_element(plans_, {}, bytes);
  return largest == plans_.end() ? nullptr : &*largest;
}

size_t PlanCache::naive_bytes() const {
  size_t bytes = 0;
  for (const PlannedStep& planned : plans_) {
    bytes = std::max(bytes, planned.executor->plan().naive_bytes);
  }
  return bytes;
}

PlannedStep* PlanCache::Find(const PlanKey& wanted) {
  auto known = std::ranges::find_if(plans_, [&](const PlannedStep& planned) {
    return planned.key.Fits(wanted);
  });
  if (known == plans_.end()) return nullptr;
  plans_.splice(plans_.begin(), plans_, known);
  return &plans_.front();
}

PlannedStep& PlanCache::Keep(PlannedStep planned) {
  names_.insert(planned.step.weight_copies.begin(),
                planned.step.weight_copies.end());
  plans_.push_front(std::move(planned));
  if (static_cast<int64_t>(plans_.size()) > most_) DropOldest();
  return plans_.front();
}

void PlanCache::DropOldest() {
  constexpr size_t kMostFits = 64;
  const PlannedStep& oldest = plans_.back();
  std::erase_if(dropped_,
                [&](const KeptFit& kept) { return oldest.key.Fits(kept.key); });
  if (oldest.fit) dropped_.push_front({oldest.key, *oldest.fit});
  if (dropped_.size() > kMostFits) dropped_.pop_back();
  plans_.pop_back();
}

void PlanCache::Clear() {
  plans_.clear();
  dropped_.clear();
}

std::optional<MemoryFit> PlanCache::DroppedFit(const PlanKey& wanted) const {
  for (const auto& [key, fit] : dropped_) {
    if (key.Fits(wanted)) return fit;
  }
  return std::nullopt;
}

std::shared_ptr<Quantizer> PlanCache::FindQuantizer(const Graph& graph) const {
  for (const PlannedStep& planned : plans_) {
    const std::shared_ptr<Quantizer>& known = planned.quantizer;
    if (known && SameGraph(known->graph(), graph)) return known;
  }
  return nullptr;
}

void PlanCache::ForgetWeightCopies() {
  for (PlannedStep& planned : plans_) {
    if (planned.quantizer) planned.quantizer->Forget();
  }
}

const TensorMap& PlanCache::CopiesFor(const PlannedStep& planned,
                                      StateStore& state) {
  static const TensorMap kNone;
  Quantizer* quantizer = planned.quantizer.get();
  const bool in_state = planned.step.kind == StepKind::kTrain;
  // The step leaves copies that are not its own behind.
  if (in_state && !(quantizer && quantizer->has_copies())) {
    ForgetWeightCopies();
    for (const std::string& name : names_) {
      if (!state.Has(name)) continue;
      const Value* own = quantizer ? quantizer->graph().Find(name) : nullptr;
      const Tensor& held = state.Get(name);
      const bool fits =
          own && held.dtype() == own->dtype && held.shape() == *own->shape;
      if (!fits) state.Erase(name);
    }
  }
  if (!quantizer) return kNone;
  if (in_state) state.AddOutside(quantizer->executor().plan());
  return quantizer->Copies(state.tensors());
}

}  // namespace onnx_fp8
