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

// Writes the model `in` to `out` with the admitted products in FP8. If
// options.dtype is a 16-bit float, the pass Autocast also rounds values to it.
// Everything else stays: other nodes, names, order, metadata, symbolic axes,
// external data and, if it is 19 or more, the opset. The exceptions are:
//   - A function that holds an admitted product is inlined. Autocast inlines
//     all functions.
//   - A Transpose of a weight is removed if nothing reads its result any more.
//   - A weight in a Constant node becomes an initializer.
//   - Below opset 19, ops that have changed since then are upgraded.
//   - Delayed scaling adds its state: initializers, inputs and update_binding.
// If the recipe is off and options.dtype is kFloat, the file is copied.
// External data are not read. If `out` lies in another folder, their files are
// copied to it. options.write says how data in the model itself are written.
//
// Errors: a model that is rewritten already, a training step, `out` equal to
// `in`, a pattern that matches nothing, functions that exceed the budgets,
// files that can't be read or written.
RewriteReport RewriteModel(const std::string& in, const std::string& out,
                           const RewriteOptions& options = {});

// Copies a file that can be trained: a model, or a training step. It also
// copies the file of the step's update, if there is one, and all external data.
// The observer is told the progress. `may_miss`: data files that do not exist
// are left out. Errors: the file is a forward pass in FP8; RewriteModel's
// errors of files.
void CopyTrainable(const std::string& in, const std::string& out,
                   const ExternalCopyObserver& observer = {},
                   bool may_miss = false);

}  // namespace onnx_fp8
