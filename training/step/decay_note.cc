// SPDX-License-Identifier: Apache-2.0
#include "training/step/decay_note.h"

#include <vector>

#include "base/check.h"
#include "base/joined.h"
#include "optimizers/optimizer.h"

namespace onnx_fp8 {

std::map<std::string, WeightUse> UsesThatDecide(const OptimizerSpec& spec,
                                                const Graph& model) {
  if (spec.decay != kDecayOfLayers) return {};
  return WeightUses(model);
}

std::string DecayNote(const OptimizerSpec& spec, const Graph& model,
                      const ParameterNames& names) {
  if (spec.decay == kDecayOfAll) return "";
  const auto uses = UsesThatDecide(spec, model);
  std::vector<std::string> still;
  std::map<WeightUse, int64_t> kinds;
  int64_t trained = 0;
  for (const Value* value : model.Initializers()) {
    if (value->role != Role::kParameter) continue;
    ++trained;
    auto known = names.find(value->name);
    const std::string& fqn =
        known == names.end() ? value->name : known->second.fqn;
    const auto it = uses.find(value->name);
    const WeightUse use = it == uses.end() ? WeightUse::kLayer : it->second;
    if (DecayOf(spec, fqn, value->name, *value->shape, use) == 0) {
      still.push_back(fqn);
      if (it != uses.end()) ++kinds[use];
    }
  }
  std::string counts;
  for (const auto& [use, count] : kinds) {
    counts += Concat(counts.empty() ? " (" : ", ", count, " ", Name(use));
  }
  if (!counts.empty()) counts += ")";
  return Concat("`decay=", spec.decay, "`: ", still.size(), " of ", trained,
                " trained tensors do not decay", counts,
                WeightDecayOf(spec) == 0 ? " (`weight_decay` is 0)" : "",
                still.empty() ? "" : ": ", Joined(still));
}

}  // namespace onnx_fp8
