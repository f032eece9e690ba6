// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/passes/gemm_decision.h"

namespace onnx_fp8 {

// One delayed scale. Key() tells what it belongs to; resume, evaluation and
// recipe switches go by it, never by the position in the state tensors.
struct ScaleSlot {
  std::string fqn;
  std::string gemm;     // role of the first GEMM that reads the copy
  std::string operand;  // "input", "weight" or "grad_output"
  DType format = DType::kE4M3;
  int64_t occurrence = 0;  // a layer that runs several times has several inputs
  Value* amax = nullptr;   // of this step, rank 0; null: not in this graph

  std::string Key() const;
};

// The slots as JSON, for a file's metadata and checkpoints, and back.
std::string SlotsText(const std::vector<ScaleSlot>& slots);
std::vector<ScaleSlot> ParseSlots(const std::string& text);

struct Fp8Plan {
  std::vector<GemmDecision> decisions;
  std::vector<ScaleSlot> slots;  // delayed scaling only
  // The others' amaxes, rank 0 each, and for slots and others in this order
  // what they are of: "blocks.0.fc.weight forward input".
  std::vector<Value*> amaxes;
  std::vector<std::string> labels;
  // State: slot i is at i of scale (N) and history (H,N); null without slots.
  Value* scale = nullptr;
  Value* history = nullptr;
  Value* q_max = nullptr;
};

// Replaces each admitted Gemm by quantised operands and a ScaledMatMul; one
// quantised copy per (value, OperandRecipe) is shared by all its readers. Adds
// the state of delayed scaling (without the update, see scale_update.h).
// `known`: slots laid out by an earlier graph of the same model; a tensor that
// has none there is scaled dynamically. `seed`, `gradients`: as ClassifyGemms.
Fp8Plan Fp8Rewrite(Graph& graph, const Fp8Spec& spec, Value* seed,
                   const std::vector<std::pair<Value*, Value*>>& gradients,
                   const std::vector<ScaleSlot>* known = nullptr);

// Adds the state of plan.slots (scale, history, q_max) to a graph.
void AddScaleState(Graph& graph, const Recipe& recipe, Fp8Plan* plan);

}  // namespace onnx_fp8
