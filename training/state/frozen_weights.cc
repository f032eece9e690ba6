// SPDX-License-Identifier: Apache-2.0
#include "training/state/frozen_weights.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "base/check.h"

namespace onnx_fp8 {

std::set<std::string> FrozenMatrices(const Graph& model) {
  std::set<std::string> names;
  const std::unordered_set<const Value*> returned = ReturnedValues(model);
  for (const Value* value : model.Initializers()) {
    if (value->role == Role::kFrozen && value->dtype == DType::kFloat &&
        value->rank() >= 2 && NumElements(*value->shape) > 0 &&
        !returned.contains(value)) {
      names.insert(value->name);
    }
  }
  for (const Value* value : model.CapturedBySubgraphs()) {
    names.erase(value->name);
  }
  return names;
}

void FrozenWeights::Take(Checkpoint* checkpoint) {
  bool in_file = true;
  for (auto& [name, source] : sources_) {
    if (auto own = checkpoint->frozen.extract(name)) {
      source = std::move(own.mapped());
      continue;
    }
    in_file = false;
    if (auto own = checkpoint->state.extract(name)) {
      source = SourceOfMapped(own.mapped());
    }
  }
  // A file with more tensors is another one: a run that goes on may train them.
  const bool same = in_file && checkpoint->frozen.empty();
  file_ = same ? checkpoint->frozen_file : std::nullopt;
}

void FrozenWeights::AddTo(SaveOptions* save) {
  save->frozen = sources_;
  save->frozen_file = &file_;
}

std::string FrozenWeights::FileRemark() const {
  if (sources_.empty()) return "";
  size_t bytes = 0;
  for (const auto& [name, source] : sources_) {
    bytes += static_cast<size_t>(NumElements(source.shape())) *
             ByteSize(source.stored());
  }
  return Concat("checkpoints share a file with the frozen weights, of ", bytes,
                " bytes");
}

void FrozenWeights::Provide(
    const std::vector<FrozenCodes>& codes, const Plan& plan, StateStore* state,
    const std::function<void(const FrozenCodes&)>& make) {
  if (sources_.empty() && codes.empty()) return;
  const auto read = [&](const std::string& name) {
    if (!Has(name) || state->Has(name)) return false;
    state->Read(name, sources_.at(name).Pull());
    return true;
  };
  for (const Value* value : plan.states) read(value->name);
  std::set<std::string> passing;  // weights that only the makers need
  const auto drop_others = [&](const std::vector<std::string>& needed) {
    std::erase_if(passing, [&](const std::string& name) {
      const bool drop = std::ranges::count(needed, name) == 0;
      if (drop) state->Erase(name);
      return drop;
    });
  };
  for (const FrozenCodes& made : codes) {
    const bool known = std::ranges::all_of(
        made.copies, [&](const std::string& name) { return state->Has(name); });
    if (known) continue;
    drop_others(made.weights);
    for (const std::string& name : made.weights) {
      if (read(name)) passing.insert(name);
    }
    copies_.insert(made.copies.begin(), made.copies.end());
    make(made);
  }
  drop_others({});
}

void FrozenWeights::Forget(StateStore* state) const {
  for (const auto& [name, source] : sources_) state->Erase(name);
  for (const std::string& name : copies_) state->Erase(name);
}

}  // namespace onnx_fp8
