// SPDX-License-Identifier: Apache-2.0
//
// Checks of the arguments of a session.
#pragma once

#include "collectives/mesh.h"
#include "onnx_fp8/provider_options.h"
#include "onnx_fp8/session.h"
#include "providers/provider.h"
#include "training/step/step_graph.h"

namespace onnx_fp8 {

// Checks combinations of settings that do not depend on the model or the
// device, for all commands that build a step. `is_step`: the model is a
// training step in a file. Errors: OptionError; CheckLossScaling's.
void CheckSettings(const SessionOptions& options, bool is_step);

// Errors: OptionError, if `metrics` has another word, or the loss lacks one of
// them.
void CheckMetrics(const SessionOptions& options, const LossSpec& loss);

// Errors: OptionError if the optimizer needs whole matrices and ranks of the
// axis tp have parts of them.
void RequireWholeMatrices(const OptimizerSpec& spec, const Mesh& mesh);

// Errors: OptionError if the optimizer is a file and its states, whose meaning
// it alone knows, would be divided or lie elsewhere.
void CheckOptimizerFile(const SessionOptions& options, const Mesh& mesh);

// Checks the option `frozen`. `is_step`: the model is a training step in a
// file. Errors: OptionError.
void CheckFrozen(const SessionOptions& options, bool is_step, const Mesh& mesh);

// What several ranks of the axis tp compute alike must be the same to the last
// bit on all of them, or their copies of the state drift apart. Errors:
// OptionError. `ranks` may be null.
void CheckOptions(const ProviderOptions& options, const MeshRanks* ranks);

// Errors: OptionError; the provider records no activities.
void CheckTimeline(const SessionOptions& options, ExecutionProvider& provider);

// Errors: OptionError, if the provider has no kernel that measures casts.
void CheckStats(const SessionOptions& options, ExecutionProvider& provider);

// Errors: OptionError, if `dump` asks for tensors of several ranks: nothing
// puts their parts together. `ranks` may be null.
void CheckDump(const SessionOptions& options, const MeshRanks* ranks);

// Checks an evaluation that is to measure its casts. Errors: OptionError, if
// the options have no `stats`, or if there are several ranks: nothing joins the
// evaluations of ranks. `ranks` may be null.
void CheckMeasures(const SessionOptions& options, const MeshRanks* ranks);

// Compares patterns of names with the model's names before its first step.
// Errors: a parameter group that matches no trained parameter; a pattern of
// FP8's filter that matches no initializer and no module.
void CheckPatterns(const StepSource& source);

// Micro steps can add up sums over labels if the loss says how many it counts,
// and if no scale is made for gradients of means. Errors: OptionError, for
// another value of grad_accum_by than "batches" or "tokens", too.
void CheckAccumulation(const SessionOptions& options, const LossSpec& loss);

// Another rate than a number of at least 0 would change all weights to NaN, or
// move them uphill. Errors: OptionError.
void CheckRate(double lr);

// Whether the feeds have the label that the loss reads; true for a model that
// computes its own loss.
bool HasLabel(const LossSpec& loss, const TensorMap& feeds);

// The cause of a loss that is not finite because it is a mean over no label.
inline constexpr char kNoLabelCounts[] = "no label of this batch counts";

// Whether the loss of a batch is a mean over no label, and so not a number.
// `outputs`: results of the run, the logits among them.
bool CountsNoLabel(const StepGraph& step, const TensorMap& feeds, float loss,
                   const TensorMap& outputs);

}  // namespace onnx_fp8
