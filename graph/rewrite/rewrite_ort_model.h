// SPDX-License-Identifier: Apache-2.0
//
// Models of onnxruntime.training.artifacts (training_model.onnx and
// eval_model.onnx) with FP8 products. They keep their names, symbolic axes and
// other nodes, and run in onnxruntime-training 1.19.2.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "graph/fp8/fp8_rewrite.h"
#include "onnx_fp8/budgets.h"

namespace onnx_fp8 {

// The parameter that holds delayed scales: row 0 the scales, then the history.
inline constexpr char kOrtScales[] = "onnx_fp8.scales";

struct OrtRewriteOptions {
  Fp8Spec spec;
  std::set<std::string> trained, frozen;  // names of parameters
  Budgets budgets;
};

struct OrtRewriteReport {
  std::vector<GemmDecision> decisions;  // without nodes and values
  std::vector<ScaleSlot> slots;
  Tensor scales;  // initial value of kOrtScales; undefined: there is none
};

// Writes the training model `in` with the admitted products in FP8: forward,
// dgrad and wgrad, by their operands. Delayed scales are one more parameter
// after the others, which the step itself replaces; it is not trained. Errors:
// ReadModel's; no training model; one that is rewritten already; a recipe that
// needs a newer opset than that runtime has; a pattern that matches nothing.
OrtRewriteReport RewriteOrtTraining(const std::string& in,
                                    const std::string& out,
                                    const OrtRewriteOptions& options);

// The same for the eval model, which has the forward products only and reads
// the scales of `training`.
void RewriteOrtEval(const std::string& in, const std::string& out,
                    const OrtRewriteOptions& options,
                    const OrtRewriteReport& training);

}  // namespace onnx_fp8
