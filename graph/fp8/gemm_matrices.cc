// SPDX-License-Identifier: Apache-2.0
#include "graph/fp8/gemm_matrices.h"

#include <tuple>
#include <unordered_set>

#include "graph/views.h"

namespace onnx_fp8 {
namespace {

// The operand in the slot, without its transposes.
GemmMatrix Peel(const Node& node, int slot) {
  auto [value, transposed] = PeelTranspose(node.in(static_cast<size_t>(slot)));
  transposed ^= node.Int(slot == 0 ? "transA" : "transB", 0) != 0;
  return {value, transposed, false, slot};
}

// The first of a layer's GEMMs that reads such a copy under the recipe, even if
// this graph lacks that GEMM. A model's first layer has a dgrad only if someone
// wants the gradient of the input. Its scales have the same names in both
// cases.
const char* FirstReader(const Recipe& recipe, const GemmInfo& gemm, int slot) {
  bool shared = gemm.role == GemmRole::kWgrad && slot == gemm.grad_slot &&
                recipe[Use::kGradOutput] == recipe[Use::kGradOutputForWgrad];
  return Name(shared ? GemmRole::kDgrad : gemm.role);
}

// A matrix and how GEMMs read it: the value, whether its last two axes are
// swapped, ScaleName's gemm and operand.
using Operand = std::tuple<const Value*, bool, std::string, std::string>;

Operand OperandIn(const GemmDecision& decision, const GemmMatrix& matrix,
                  const Recipe& main) {
  const Recipe& own = decision.recipe.enabled() ? decision.recipe : main;
  return {matrix.value, matrix.swaps_last,
          FirstReader(own, decision.gemm, matrix.slot),
          OperandName(decision.gemm, matrix.slot)};
}

}  // namespace

GemmMatrices::GemmMatrices(const std::vector<GemmDecision>& decisions) {
  for (const GemmDecision& decision : decisions) {
    bool layer = decision.possible && decision.gemm.weight_slot == 1;
    if (layer) AddColumns(*decision.gemm.node);
  }
}

std::array<GemmMatrix, 2> GemmMatrices::Of(const GemmInfo& gemm) const {
  const Node& node = *gemm.node;
  GemmMatrix left = Peel(node, 0), right = Peel(node, 1);
  if (gemm.role == GemmRole::kWgrad) {
    left.value = Whole(left.value);
    right.value = Whole(right.value);
  }
  bool swapped =
      gemm.weight_slot == 0 && node.in(1)->shape && node.in(1)->rank() > 2;
  if (!swapped) return {left, right};
  left.transposed = !left.transposed;
  return {GemmMatrix{node.in(1), false, true, 1}, left};
}

void GemmMatrices::AddColumns(const Node& node) {
  GemmMatrix x = Peel(node, 0), weight = Peel(node, 1);
  if (x.transposed || !weight.value->concrete()) return;
  columns_[x.value] = weight.value->dim(weight.transposed ? 1 : 0);
}

// In training graphs of ONNX Runtime a wgrad reads the rows of a value: a
// Reshape. The layer's other products read the value itself. One copy in FP8
// serves all of them.
Value* GemmMatrices::Whole(Value* rows) const {
  const Node* node = rows->producer;
  if (!node || !node->Is("Reshape") || !rows->shape || rows->rank() != 2) {
    return rows;
  }
  auto whole = columns_.find(node->in(0));
  bool same = whole != columns_.end() && whole->second == rows->dim(-1);
  return same ? node->in(0) : rows;
}

const char* OperandName(const GemmInfo& gemm, int slot) {
  return slot == gemm.weight_slot ? "weight"
         : slot == gemm.grad_slot ? "grad_output"
                                  : "input";
}

ScaleNames NameScales(const std::vector<GemmDecision>& decisions,
                      const GemmMatrices& matrices, const Recipe& recipe) {
  struct Named {
    std::shared_ptr<std::vector<ScaleName>> names =
        std::make_shared<std::vector<ScaleName>>();
    std::unordered_set<std::string> layers;
  };
  std::map<Operand, Named> named;
  std::map<std::tuple<std::string, std::string, std::string>, int64_t> counts;
  auto for_each = [&](auto fn) {
    for (const GemmDecision& decision : decisions) {
      if (!decision.possible) continue;
      for (const GemmMatrix& matrix : matrices.Of(decision.gemm)) {
        fn(decision, matrix.slot, OperandIn(decision, matrix, recipe));
      }
    }
  };
  for_each([&](const GemmDecision& decision, int, const Operand& read) {
    auto& [names, layers] = named[read];
    if (!layers.insert(decision.fqn).second) return;
    const auto& [value, swaps, gemm, operand] = read;
    int64_t occurrence = counts[{decision.fqn, gemm, operand}]++;
    names->push_back({decision.fqn, gemm, operand, occurrence});
  });
  ScaleNames all;
  for_each([&](const GemmDecision& decision, int slot, const Operand& read) {
    all[{decision.gemm.node, slot}] = named[read].names;
  });
  return all;
}

}  // namespace onnx_fp8
