// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/parameter_names.h"
#include "graph/passes/gemm_roles.h"
#include "graph/passes/scale_slots.h"
#include "onnx_fp8/gemm_filter.h"
#include "onnx_fp8/recipe.h"

namespace onnx_fp8 {

// Which GEMMs run in FP8, and how.
struct Fp8Spec {
  Recipe recipe;
  GemmFilter filter = {};
  ParameterNames names = {};  // for the filter; may be empty
  StaticScales scales = {};
  bool any_m = false;  // the graph's M stands for all sizes
};

// Whether a GEMM runs in FP8 and why (not).
struct GemmDecision {
  GemmInfo gemm;
  std::string node;    // its name or output, before the rewrite
  std::string module;  // module path, "" if the file has none
  std::string fqn;     // of the weight; "" for kNone
  bool fp8 = false;
  std::string reason;  // "linear", "attention", "filtered", "recipe off", …
  Recipe recipe;       // of the layer, where it is admitted
  // Of the layer's forward and backward together, where a table of speeds
  // tells.
  std::optional<double> speedup;

  // What its K and N are multiples of on a GPU; nothing here needs that.
  int64_t alignment() const;
};

// What the recipe does with the operand in the GEMM's input slot `slot`.
// REQUIRES: a role.
const OperandRecipe& OperandOf(const Recipe& recipe, const GemmInfo& gemm,
                               int slot);

// Says for every MatMul and Gemm what becomes of it. Errors: an impossible
// recipe.
std::vector<GemmDecision> DecideGemms(const std::vector<GemmInfo>& gemms,
                                      const Fp8Spec& spec);

// Errors: a pattern of the filter that matches none of all decisions of `file`
// and none of the parameters that the graph leaves out.
void CheckPatterns(const std::vector<GemmDecision>& decisions,
                   const Fp8Spec& spec, const std::string& file,
                   const std::vector<std::string>& left_out = {});

}  // namespace onnx_fp8
