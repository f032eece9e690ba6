// SPDX-License-Identifier: Apache-2.0
#include "graph/fp8/gemm_matrices.h"

#include "graph/views.h"

namespace onnx_fp8 {
namespace {

// The operand in the slot, without its transposes.
GemmMatrix Peel(const Node& node, int slot) {
  auto [value, transposed] = PeelTranspose(node.in(static_cast<size_t>(slot)));
  transposed ^= node.Int(slot == 0 ? "transA" : "transB", 0) != 0;
  return {value, transposed, false, slot};
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

}  // namespace onnx_fp8
