// SPDX-License-Identifier: Apache-2.0
//
// The part of AppendOptimizer in which optimizers differ; internal.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/stochastic_rounding.h"
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
  Value* step;  // number of this update in the formula, from 1
  Value* lr;
  Value* grad_scale;
  Value* ok;
  const StateNames& names;
  DType moments;  // in which they are kept
  ElementPlaces places;
  Value* seed;    // of the draws; null: nothing is drawn
  Value* number;  // of this update, which draws read
  bool measured;  // its largest element is wanted
};

// Adds the update node, its moments and the bindings to the graph. Returns the
// amax of a measured update (OptimizerValues::update_amax); null: there is
// none.
using AppendFunction = Value*(Builder& b, const Update& update,
                              const OptimizerSpec& spec);

// As MomentsOf.
using MomentsFunction = std::vector<std::string>(const OptimizerSpec& spec);

struct OptimizerRow {
  std::string_view name;
  double weight_decay;  // if the spec has none
  MomentsFunction* moments;
  AppendFunction* append;
};

// The table of optimizers. A file of optimizers adds its rows in a function
// `void Register…(OptimizerRegistry& r)`.
class OptimizerRegistry {
 public:
  void Add(const OptimizerRow& row) { rows_.push_back(row); }
  const std::vector<OptimizerRow>& rows() const { return rows_; }

 private:
  std::vector<OptimizerRow> rows_;
};

void RegisterAll(OptimizerRegistry& r);  // cmake/registers.cmake writes it

// For an AppendFunction: adds a node `op` (param, grad, moments…, scalars…).
// Each moment, one of kMoments, is state that starts at zero, kept as
// update.moments says. Returns the node's results: the new parameter, then the
// new moments before they are rounded.
std::vector<Value*> AppendUpdate(Builder& b, const std::string& op,
                                 const Update& update,
                                 const std::vector<std::string>& moments,
                                 const std::vector<Value*>& scalars,
                                 Attributes attributes);

// Adds state. `names`: as AppendOptimizer's.
Value* AddState(Graph& graph, const StateNames& names, const std::string& name,
                Role role, Tensor initial);

// `next` replaces `state` after the step and is named after it.
void Bind(Graph& graph, Value* state, Value* next);

}  // namespace onnx_fp8
