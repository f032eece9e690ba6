// SPDX-License-Identifier: Apache-2.0
#include "training/step/decay_note.h"

#include <vector>

#include "base/check.h"
#include "base/joined.h"
#include "optimizers/optimizer.h"

namespace onnx_fp8 {

std::string DecayNote(const OptimizerSpec& spec, const Graph& model,
                      const ParameterNames& names) {
  if (spec.decay == kDecayOfAll) return "";
  std::vector<std::string> still;
  int64_t trained = 0;
  for (const Value* value : model.Initializers()) {
    if (value->role != Role::kParameter) continue;
    ++trained;
    auto known = names.find(value->name);
    const std::string& fqn =
        known == names.end() ? value->name : known->second.fqn;
    if (DecayOf(spec, fqn, value->name, *value->shape) == 0) {
      still.push_back(fqn);
    }
  }
  return Concat("`decay=", spec.decay, "`: ", still.size(), " of ", trained,
                " trained tensors do not decay",
                WeightDecayOf(spec) == 0 ? " (`weight_decay` is 0)" : "",
                still.empty() ? "" : ": ", Joined(still));
}

}  // namespace onnx_fp8
