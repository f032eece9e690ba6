// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/passes/gemm_decision.h"
#include "graph/passes/scale_slots.h"

namespace onnx_fp8 {

// What the FP8 rewrite of a graph did.
struct Fp8Plan {
  std::vector<GemmDecision> decisions;
  std::vector<ScaleSlot> slots;  // delayed and static scaling only
  // The amaxes that move no slot, rank 0 each, and for slots and others in this
  // order what they are of: "blocks.0.fc.weight forward input".
  std::vector<Value*> amaxes;
  std::vector<std::string> labels;
  // State: slot i is at i of scale (N) and history (H,N); null without slots,
  // history and q_max without delayed ones.
  Value* scale = nullptr;
  Value* history = nullptr;
  Value* q_max = nullptr;
};

}  // namespace onnx_fp8
