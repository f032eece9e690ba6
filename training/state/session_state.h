// SPDX-License-Identifier: Apache-2.0
//
// A session's state in memory and in a checkpoint: tensors, and notes of the
// session among its caller's notes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "graph/fp8/scale_slots.h"
#include "onnx_fp8/optimizer_spec.h"
#include "onnx_fp8/recipe.h"
#include "onnx_fp8/session.h"
#include "onnx_fp8/tensor_source.h"
#include "providers/run/state_store.h"
#include "training/ranks/sharded_state.h"
#include "training/state/checkpoint.h"

namespace onnx_fp8 {

using StateNotes = std::map<std::string, std::string>;

// What became of the steps of a run.
struct StepCounts {
  int64_t skipped = 0;  // steps
  int64_t tracked = 0;  // batches of the others: running statistics have them
};

void AddStateNotes(const StepCounts& counts,
                   const std::optional<std::vector<ScaleSlot>>& slots,
                   const Recipe& recipe, StateNotes* notes);
// Leaves the caller's notes.
void EraseStateNotes(StateNotes* notes);
// `batches`: of all steps, `grad_accum` of each that was skipped, unless a note
// says how many are tracked. Errors: [where] a note is no such number.
StepCounts StepCountsOf(const StateNotes& notes, int64_t batches,
                        int64_t grad_accum, const std::string& where);
// The recipe of the session that made the state.
Recipe RecipeOf(const StateNotes& notes);

// `fingerprint`: the model's. Errors: a note is missing; another model.
Checkpoint ToCheckpoint(const SessionState& state,
                        const std::string& fingerprint);
SessionState ToState(int64_t step, StateNotes notes,
                     const std::string& fingerprint, TensorMap tensors);

// Errors: [where] the checkpoint lacks one of the model's tensors, as a run
// keeps them, or has another type for it, or keeps it by another `master`.
void CheckWeights(const Checkpoint& checkpoint, const SourceMap& kept,
                  const std::string& where);
// Errors: [where] the checkpoint keeps moments of one of these weights in
// another format than `spec` does.
void CheckMoments(const Checkpoint& checkpoint, const SourceMap& weights,
                  const OptimizerSpec& spec, const std::string& where);
// Takes state out of the checkpoint that no step of this run would change: the
// states of these weights, of whatever optimizer, that the optimizer of `spec`
// does not keep; averages, if it keeps none; and the norm of the step before,
// if it keeps none. Returns a remark about states and averages; "": there are
// none. `of_rest`: the weights that RestOf the spec updates; `model`: names
// them.
std::string DropUnkept(const SourceMap& weights, const Graph& model,
                       const OptimizerSpec& spec,
                       const std::set<std::string>& of_rest,
                       Checkpoint* checkpoint);
// All tensors of the checkpoint become the parts that this rank keeps, in
// checkpoint->state.
void TakeParts(Checkpoint* checkpoint, const ShardedState& sharded);
// The tensors of the checkpoint become the state; its frozen ones are whole,
// and only this rank's parts stay. Tensors that it lacks go.
void ReplaceState(const Checkpoint& checkpoint, const ShardedState& sharded,
                  StateStore* state);
// Errors: [model] has no such tensor, or another type for it.
void CheckWeights(const TensorMap& given, const SourceMap& weights,
                  const std::string& model);

}  // namespace onnx_fp8
