// SPDX-License-Identifier: Apache-2.0
//
// The part of AppendOptimizer in which optimizers differ; internal.
#pragma once

#include "graph/builder.h"
#include "optimizers/optimizer.h"

namespace onnx_fp8 {

// One parameter and the inputs of its update node.
struct Update {
  Value* param;
  Value* grad;
  std::string name;  // of the node
  double weight_decay;
  double lr_scale;
  Value* step;  // number of this update, from 1
  Value* lr;
  Value* grad_scale;
  Value* ok;
  const StateNames& names;
};

// Adds the update node, its moments and the bindings to the graph.
using AppendFunction = void(Builder& b, const Update& update,
                            const OptimizerSpec& spec);

// The table of optimizers. An optimizer has a row here and a file that appends
// its node.
AppendFunction AppendAdam, AppendAdamW, AppendAdamWHf, AppendSgd;
struct OptimizerRow {
  const char* name;
  double weight_decay;  // if the spec has none
  AppendFunction* append;
};
inline constexpr OptimizerRow kOptimizers[] = {
    {"adamw", 0.01, AppendAdamW},  // decoupled weight decay
    {"adam", 0, AppendAdam},
    // Hugging Face's: eps before the bias correction, decay after the update.
    {"adamw_hf", 0, AppendAdamWHf},
    {"sgd", 0, AppendSgd},
};

// For the functions above: adds a node `op` (param, grad, moments…, scalars…).
// Each moment, one of kMoments, is state that starts at zero.
void AppendUpdate(Builder& b, const std::string& op, const Update& update,
                  const std::vector<std::string>& moments,
                  const std::vector<Value*>& scalars, Attributes attributes);

// `next` replaces `state` after the step and is named after it.
void Bind(Graph& graph, Value* state, Value* next);

}  // namespace onnx_fp8
