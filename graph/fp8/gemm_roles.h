// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "graph/graph.h"

namespace onnx_fp8 {

enum class GemmRole { kNone, kForward, kDgrad, kWgrad };

const char* Name(GemmRole role);

// The role of a MatMul or Gemm for the linear layer whose weight it touches.
struct GemmInfo {
  Node* node = nullptr;
  GemmRole role = GemmRole::kNone;
  Value* weight = nullptr;  // the parameter; null for kNone
  // y (M,N) = a (M,K) b (K,N), batch axes in M; -1 if not known.
  int64_t m = -1;
  int64_t k = -1;
  int64_t n = -1;
  // Input slots of the weight or a view of it (forward, dgrad), and of the
  // gradient of the layer's output (dgrad, wgrad); -1 if there is none.
  int weight_slot = -1;
  int grad_slot = -1;
};

// Every MatMul and Gemm of the graph in order, and as kNone the products inside
// our Attention ops (in the backward only products that the forward lacks).
// Roles come from operands, never from names:
// - forward: no operand depends on a loss gradient, and one is a weight view;
// - dgrad: one operand depends on a loss gradient, the other is a weight view;
// - wgrad: one operand depends on a loss gradient, the other is a forward value
//   that is no weight, and the result reaches the gradient of a forward GEMM's
//   weight (`gradients`: parameter → its gradient) through views, Add, Sum,
//   ReduceSum and Pad (of a sliced weight).
// `seed` is the gradient of the loss by itself; null in a forward graph.
std::vector<GemmInfo> ClassifyGemms(
    Graph& graph, Value* seed,
    const std::vector<std::pair<Value*, Value*>>& gradients);

}  // namespace onnx_fp8
