// SPDX-License-Identifier: Apache-2.0
//
// Which trained tensors an optimizer of matrices takes, as Muon, and which ones
// it leaves to another one (RestOf).
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>

#include "graph/graph.h"
#include "graph/parameter_names.h"
#include "onnx_fp8/optimizer_spec.h"
#include "onnx_fp8/session.h"

namespace onnx_fp8 {

enum class TakenAs {
  kMatrix,     // by the optimizer; all others by RestOf it
  kNoMatrix,   // it has not two axes, or no elements
  kTable,      // data choose its rows
  kLastLayer,  // no other layer lies between its product and the scores
  kNoProduct,  // no product reads it
  kNotNamed,   // MuonSettings::only does not name it
};

// How the optimizer takes each trained tensor; empty: it takes all in one way.
// The tensor of a hidden layer is a matrix that a product reads and that is
// neither a table nor a last layer, from `loss.logits` or the first output
// backwards. Errors: a pattern of MuonSettings::only that names no trained
// tensor, or one that is no matrix.
std::map<std::string, TakenAs> TakenByOptimizer(const OptimizerSpec& spec,
                                                const LossSpec& loss,
                                                const Graph& model,
                                                const ParameterNames& names);

// "a table": what is said of a tensor that the optimizer leaves to RestOf it.
std::string_view Reason(TakenAs taken);

// The result in words: "`optimizer=muon`: 1 of 3 trained tensors take it:
// fc1.weight; the others take adamw: fc1.bias (no matrix), head (the last
// layer)". For an optimizer in a file: its states. "": nothing is to be said.
std::string TakenNote(const OptimizerSpec& spec,
                      const std::map<std::string, TakenAs>& taken,
                      const ParameterNames& names);

}  // namespace onnx_fp8
