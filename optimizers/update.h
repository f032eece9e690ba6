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
  const ParameterGradient& of;
  const Graph* rule;  // of a file (own_optimizer.h); else null
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
  std::string_view rest = "";  // see RestOf
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

// The state of a moment.
struct Moment {
  std::string name;  // of the parameter and of the moment
  bool is_square;    // a mean of squares
  Value* kept;
  Value* scale;  // of codes; null: the moment is no codes
};

// Adds a moment, one of kMoments, which starts at zero and is kept as
// update.moments says.
Moment AddMoment(Graph& graph, const Update& update, const std::string& moment);

// The moment in the parameter's dtype.
Value* Decoded(Builder& b, const Update& update, const Moment& moment);

// Binds the moment to `next` as the state keeps it. To the nearest, a mean of
// squares would stand still: where beta2 is 0.999, a step moves it by less than
// half a unit in the last place of a bfloat16.
void BindMoment(Builder& b, const Update& update, const Moment& moment,
                Value* next);

// For an AppendFunction: adds a node `op` (param, grad, moments…, scalars…).
// The moments are AddMoment's. Returns the node's results: the new parameter,
// then the new moments before they are rounded.
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
