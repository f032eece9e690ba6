// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "graph/fp8/fp8_rewrite.h"
#include "graph/onnx/onnx_io.h"
#include "graph/passes/pass.h"
#include "graph/passes/trained_parameters.h"
#include "onnx_fp8/external_copy.h"

namespace onnx_fp8 {

struct RewriteReport {
  std::vector<GemmDecision> decisions;  // sizes are -1 where symbolic
  int64_t rewritten = 0;
  int opset_before = 0;
  int opset_after = 0;
};

struct RewriteOptions {
  Fp8Spec spec;
  // kFloat, or the 16-bit float to which Autocast rounds.
  DType dtype = DType::kFloat;
  ParameterPatterns patterns;
  ExternalCopyObserver observer;
  WriteOptions write;
  Budgets budgets;
  // Keeps the times of the passes and may write their texts; may be null.
  PassRunner* runner = nullptr;
};

// Writes `in` to `out` with the admitted products in FP8, and with the values
// that Autocast rounds in 16 bits if options.dtype is one. Everything else
// stays: other nodes, names, order, metadata, symbolic axes, external data and,
// if >= 19, the opset. There are a few exceptions. Functions that hold an
// admitted product are inlined, and all functions before Autocast; a weight's
// Transpose without readers is removed; weights in Constant nodes become
// initializers; below opset 19 the ops that changed since are upgraded. Delayed
// scaling adds its state (initializer, input and update_binding). Recipe off
// without Autocast copies the file. External data are not read. Their files
// stay if `out` lies in the same folder, and are copied to another one; data in
// the model itself are written as options.write says. Errors: a model that is
// rewritten already, a training step, `out` equal to `in`, a pattern that
// matches nothing, functions that exceed the budgets, files that can't be read
// or written.
RewriteReport RewriteModel(const std::string& in, const std::string& out,
                           const RewriteOptions& options = {});

}  // namespace onnx_fp8
