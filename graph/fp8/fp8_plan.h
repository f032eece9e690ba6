// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "graph/fp8/gemm_decision.h"
#include "graph/fp8/scale_slots.h"
#include "graph/graph.h"

namespace onnx_fp8 {

// Results of the FP8 rewrite of a graph.
struct Fp8Plan {
  std::vector<GemmDecision> decisions;
  std::vector<ScaleSlot> slots;  // delayed and static scaling only
  // The amaxes that belong to no slot, each of rank 0. Labels of slots, then of
  // these amaxes, in this order: "blocks.0.fc.weight forward input".
  std::vector<Value*> amaxes;
  std::vector<std::string> labels;
  // State: slot i is entry i of scale (N) and column i of history (H,N). All
  // are null without slots; history and q_max are null without delayed slots.
  Value* scale = nullptr;
  Value* history = nullptr;
  Value* q_max = nullptr;
};

}  // namespace onnx_fp8
