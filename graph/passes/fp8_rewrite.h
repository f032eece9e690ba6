// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/passes/gemm_roles.h"
#include "onnx_fp8/recipe.h"

namespace onnx_fp8 {

// Whether a GEMM runs in FP8 and why (not).
struct GemmDecision {
  GemmInfo gemm;
  std::string node;    // its name or output, before the rewrite
  std::string module;  // module path, "" if the file has none
  std::string fqn;     // of the weight; "" for kNone
  bool fp8 = false;
  std::string reason;  // "linear", "attention", "filtered", "off", …
};

// One delayed scale: position in the state tensors → what it belongs to. The
// text is the key for resume and recipe switches, never the position.
struct ScaleSlot {
  std::string fqn;
  std::string gemm;     // role of the first GEMM that reads it
  std::string operand;  // "input", "weight" or "grad_output"
  DType format;
  Value* amax = nullptr;  // of this step, rank 0
};

// The slots as JSON for a file's metadata: [{"fqn": …, "gemm": …, …}, …].
std::string SlotsText(const std::vector<ScaleSlot>& slots);

struct Fp8Plan {
  std::vector<GemmDecision> decisions;
  std::vector<ScaleSlot> slots;  // delayed scaling only
  std::vector<Value*> amaxes;    // every quantised tensor's, delayed or not
  // Amax of slot i is at i of scale (N), history (H,N); null without slots.
  Value* scale = nullptr;
  Value* history = nullptr;
  Value* q_max = nullptr;
};

// Says for every MatMul and Gemm what the recipe does with it.
std::vector<GemmDecision> DecideGemms(const std::vector<GemmInfo>& gemms,
                                      const Recipe& recipe);

// Replaces each admitted Gemm by quantised operands and a ScaledMatMul; one
// quantised copy per (value, format) is shared by all its readers. Adds the
// state of delayed scaling (without the update, see scale_update.h).
// REQUIRES: NormaliseLinear before autodiff; concrete shapes.
Fp8Plan Fp8Rewrite(Graph& graph, const Recipe& recipe, Value* seed,
                   const std::vector<std::pair<Value*, Value*>>& gradients);

}  // namespace onnx_fp8
