// SPDX-License-Identifier: Apache-2.0
#include "training/state/averages.h"

#include "base/check.h"
#include "optimizers/ema.h"

namespace onnx_fp8 {

Averages::Averages(const Graph& model, bool is_step,
                   const SessionOptions& options)
    : model_(model.file),
      reads_(options.eval_with == "ema"),
      count_(StateName(model, kAveraged)) {
  if (is_step || options.optimizer.ema == 0) return;
  for (const Value* value : model.Initializers()) {
    if (value->role != Role::kParameter) continue;
    names_[value->name] = StateName(model, value->name + kEma);
  }
}

std::map<std::string, std::string> Averages::ToRead(
    const StateStore& state) const {
  std::map<std::string, std::string> read;
  if (!reads_ || !state.Has(count_)) return read;
  if (IntAt(state.Host(count_), 0) == 0) return read;
  for (const auto& [weight, average] : names_) {
    if (state.Has(average)) read.emplace(weight, average);
  }
  return read;
}

void Averages::Begin(const Graph& step, const Masters& masters,
                     StateStore* state) const {
  for (const auto& [weight, average] : names_) {
    if (!step.Find(average) || state->Has(average)) continue;
    SourceMap kept;
    for (const std::string& name : masters.NamesFor(weight)) {
      kept.emplace(name, state->Source(name));
    }
    state->Set(average, masters.Decoded(std::move(kept)).at(weight).Pull());
  }
}

void Averages::Restart(const TensorMap& weights, StateStore* state) const {
  bool any = false;
  for (const auto& [weight, average] : names_) {
    if (weights.contains(weight)) state->Erase(average);
    any |= state->Has(average);
  }
  if (!any) state->Erase(count_);
}

SourceMap Averages::Exported(SourceMap weights, const ShardedState& sharded,
                             const StateStore& state) const {
  if (!reads_) return weights;
  const std::map<std::string, std::string> read = ToRead(state);
  Check(!read.empty(), "[", model_,
        "] expected averages of weights, got none: no update has moved them");
  for (const auto& [weight, average] : read) {
    weights.insert_or_assign(weight, sharded.Source(state, average));
  }
  return weights;
}

}  // namespace onnx_fp8
