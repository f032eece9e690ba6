// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "graph/fp8/gemm_roles.h"
#include "graph/fp8/scale_slots.h"
#include "graph/graph.h"
#include "graph/parameter_names.h"
#include "onnx_fp8/gemm_filter.h"
#include "onnx_fp8/recipe.h"

namespace onnx_fp8 {

// Which GEMMs run in FP8, and how.
struct Fp8Spec {
  Recipe recipe;
  GemmFilter filter = {};
  ParameterNames names = {};  // for the filter; may be empty
  StaticScales scales = {};
  bool any_m = false;  // the graph's M stands for any size
  // Whether a frozen weight's scale is its own where the recipe delays scales:
  // its codes then never change (frozen_codes.h).
  bool own_frozen_scales = false;

  // Whether the main recipe or one of the filter's uses such scales.
  bool Uses(Scaling scaling) const;
};

// Whether a GEMM runs in FP8 and why (not).
struct GemmDecision {
  GemmInfo gemm;
  std::string node;    // its name or output, before the rewrite
  std::string module;  // module path, "" if the file has none
  std::string fqn;     // of the weight; "" for kNone
  bool fp8 = false;
  bool possible = false;  // in FP8, were there no filter
  std::string reason;  // "linear", "attention", "filtered", "recipe off", …
  Recipe recipe;       // of the layer, if it is admitted
  // Speed-up of the layer's forward and backward together, if a table of speeds
  // has it.
  std::optional<double> speedup;

  // A GPU wants K and N to be multiples of this; nothing here needs that.
  int64_t alignment() const;
};

// The part of the recipe for the operand in the GEMM's input slot `slot`.
// REQUIRES: a role.
const OperandRecipe& OperandOf(const Recipe& recipe, const GemmInfo& gemm,
                               int slot);

// Decides for every MatMul and Gemm whether and how it runs in FP8. Errors: an
// impossible recipe.
std::vector<GemmDecision> DecideGemms(const std::vector<GemmInfo>& gemms,
                                      const Fp8Spec& spec);

// Errors: a pattern of the filter that matches no decision of `file` and no
// parameter that the graph leaves out.
void CheckPatterns(const std::vector<GemmDecision>& decisions,
                   const Fp8Spec& spec, const std::string& file,
                   const std::vector<std::string>& left_out = {});

// The check before any product is known. Errors: a pattern that matches no
// initializer and no module of the model.
void CheckPatterns(const Graph& model, const Fp8Spec& spec);

}  // namespace onnx_fp8
