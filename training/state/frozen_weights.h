// SPDX-License-Identifier: Apache-2.0
//
// Frozen matrices that live as FP8 codes and scales (`frozen` fp8). Their
// numbers stay where they come from: the model's file, given weights, or the
// file that checkpoints share. The state has no more than plans read.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "graph/fp8/frozen_codes.h"
#include "graph/graph.h"
#include "onnx_fp8/tensor_source.h"
#include "providers/plan/plan.h"
#include "providers/run/state_store.h"
#include "training/state/checkpoint.h"

namespace onnx_fp8 {

// The weights of a model for which `frozen` says how they live: floats that are
// not trained, with two axes or more, that no subgraph reads and that are no
// output.
std::set<std::string> FrozenMatrices(const Graph& model);

class FrozenWeights {
 public:
  // `source`: the weight as the state would keep it. The state may hold
  // numbers of the old source until Forget.
  void Set(const std::string& name, TensorSource source) {
    sources_.insert_or_assign(name, std::move(source));
    file_.reset();
  }
  // Moves the weights of a checkpoint out of it: tensors, which may lie in a
  // mapped file, and those of its frozen file. REQUIRES: as SourceOfMapped's.
  void Take(Checkpoint* checkpoint);
  // Adds the weights to a checkpoint: to the file that it shares with others.
  // REQUIRES: this outlives `save`.
  void AddTo(SaveOptions* save);
  // What that file costs; "": there are no weights.
  std::string FileRemark() const;

  bool Has(const std::string& name) const { return sources_.contains(name); }
  const SourceMap& sources() const { return sources_; }
  // Whether the state of that name follows from sources.
  bool IsDerived(const std::string& name) const {
    return Has(name) || copies_.contains(name);
  }

  // Gives the state what a plan reads and what is not there yet: weights that
  // are read as they are, and codes, which `make` makes. A weight of which
  // codes are made is in the state meanwhile, and no other one. Errors: the
  // sources'; make's.
  void Provide(const std::vector<FrozenCodes>& codes, const Plan& plan,
               StateStore* state,
               const std::function<void(const FrozenCodes&)>& make);
  // Removes all frozen weights and codes from the state.
  void Forget(StateStore* state) const;

 private:
  SourceMap sources_;
  std::optional<FrozenFile> file_;  // with these weights, if it is written
  std::set<std::string> copies_;    // state that holds codes, scales and amaxes
};

}  // namespace onnx_fp8
