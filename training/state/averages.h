// SPDX-License-Identifier: Apache-2.0
//
// Averages of trained weights in a session's state (OptimizerSpec::ema), and
// the evaluation and the exports that read them in place of the weights.
#pragma once

#include <map>
#include <string>

#include "graph/graph.h"
#include "onnx_fp8/session.h"
#include "onnx_fp8/tensor_source.h"
#include "providers/run/state_store.h"
#include "training/ranks/sharded_state.h"
#include "training/state/masters.h"

namespace onnx_fp8 {

class Averages {
 public:
  // A training step in a file keeps its averages as other state.
  Averages(const Graph& model, bool is_step, const SessionOptions& options);

  // By weight, the state that evaluation reads in its place. Empty: it reads
  // weights, or no update has moved an average yet.
  std::map<std::string, std::string> ToRead(const StateStore& state) const;

  // An average that this step moves and that the state lacks begins as its
  // weight: other batches may have moved other averages before.
  void Begin(const Graph& step, const Masters& masters,
             StateStore* state) const;

  // Forgets the averages of these weights, which a caller has set: they begin
  // anew. Without any average all begin as in a run that starts.
  void Restart(const TensorMap& weights, StateStore* state) const;

  // `weights` of the model as exports write them. Errors: no update has moved
  // an average that they want.
  SourceMap Exported(SourceMap weights, const ShardedState& sharded,
                     const StateStore& state) const;

 private:
  std::string model_;
  bool reads_;
  std::string count_;                         // the name of the counter
  std::map<std::string, std::string> names_;  // by weight
};

}  // namespace onnx_fp8
