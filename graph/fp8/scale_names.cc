// SPDX-License-Identifier: Apache-2.0
#include "graph/fp8/scale_names.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <tuple>

namespace onnx_fp8 {
namespace {

// The first of a layer's GEMMs that reads such a copy under the recipe, even if
// this graph lacks that GEMM. The first layer usually has no dgrad; so it keeps
// the same scales in graphs where it has one.
GemmRole FirstReader(const Recipe& recipe, const GemmInfo& gemm, int slot) {
  bool shared = gemm.role == GemmRole::kWgrad && slot == gemm.grad_slot &&
                recipe[Use::kGradOutput] == recipe[Use::kGradOutputForWgrad];
  return shared ? GemmRole::kDgrad : gemm.role;
}

// The GEMMs that may run in FP8, in an order in which the first reader of a
// matrix is that of the known slots.
std::vector<const GemmDecision*> InOrder(
    const std::vector<GemmDecision>& decisions,
    const std::vector<ScaleSlot>* known) {
  std::vector<const GemmDecision*> order;
  for (const GemmDecision& decision : decisions) {
    if (decision.possible) order.push_back(&decision);
  }
  if (!known) return order;
  auto slots = [&](const GemmDecision* decision) {
    return std::ranges::count_if(*known, [&](const ScaleSlot& slot) {
      return slot.fqn == decision->fqn &&
             slot.gemm == Name(decision->gemm.role);
    });
  };
  std::ranges::stable_sort(order, std::greater(), slots);
  return order;
}

}  // namespace

const char* OperandName(const GemmInfo& gemm, int slot) {
  return slot == gemm.weight_slot ? "weight"
         : slot == gemm.grad_slot ? "grad_output"
                                  : "input";
}

ScaleNames NameScales(const std::vector<GemmDecision>& decisions,
                      const GemmMatrices& operands, const Recipe& recipe,
                      const std::vector<ScaleSlot>* known) {
  using Copy = std::tuple<const Value*, bool, DType, Scaling>;
  std::map<Copy, ScaleSlot> named;
  std::map<std::string, int64_t> occurrences;
  ScaleNames names;
  for (const GemmDecision* decision : InOrder(decisions, known)) {
    const GemmInfo& gemm = decision->gemm;
    const Recipe& own = decision->recipe.enabled() ? decision->recipe : recipe;
    for (const GemmMatrix& operand : operands.Of(gemm)) {
      const OperandRecipe& how = OperandOf(own, gemm, operand.slot);
      if (how.high_precision || how.scaling == Scaling::kDynamic) continue;
      Copy copy = {operand.value, operand.swaps_last, how.dtype, how.scaling};
      auto [it, first] = named.try_emplace(copy);
      if (first) {
        ScaleSlot& slot = it->second;
        slot.fqn = decision->fqn;
        slot.gemm = Name(FirstReader(own, gemm, operand.slot));
        slot.operand = OperandName(gemm, operand.slot);
        slot.format = how.dtype;
        slot.scaling = how.scaling;
        slot.occurrence = occurrences[slot.Key()]++;
      }
      names[{gemm.node, operand.slot}] = it->second;
    }
  }
  return names;
}

}  // namespace onnx_fp8
