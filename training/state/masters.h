// SPDX-License-Identifier: Apache-2.0
//
// Weights that a run keeps as bfloat16s: trained ones, with or without a
// correction (`master`), and frozen ones (`frozen`). Users read and write them
// as floats.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "onnx_fp8/optimizer_spec.h"
#include "onnx_fp8/tensor_source.h"

namespace onnx_fp8 {

// The weights of a model that a run with these options keeps so: trained
// floats with an axis and elements that no subgraph reads and that are no
// output. Errors: an unknown `master`.
std::set<std::string> WeightsToKeepAsHalves(const Graph& model,
                                            const OptimizerSpec& spec);

// Whether an initializer of a training step is the bfloat16 of a weight. (No
// model has trained bfloat16s: its import makes them floats.)
bool IsHalfOfWeight(const Value& value);

// The dtype that users see.
DType DTypeOfWeight(const Value& value);

// The weight with that bfloat16. `correction` may be null. Errors: [name] the
// correction has another shape, or no dtype of one.
Tensor DecodedMaster(const Tensor& half, const Tensor* correction,
                     const std::string& name);

// The weight whose correction has the name, which may end in a number
// (StateName); "": it is no name of a correction.
std::string WeightOfCorrection(const std::string& name);

// Replaces bfloat16s that have a correction among `tensors` by the floats.
// Errors: DecodedMaster's.
void JoinCorrections(TensorMap* tensors);

class Masters {
 public:
  // The weights of a session's model. If it is a training step, its graph
  // decides, not the options. `frozen`: weights that are bfloat16s and do not
  // move.
  Masters(const Graph& model, bool is_step, const OptimizerSpec& spec,
          const std::set<std::string>& frozen = {});

  // The names of the tensors that are kept for a tensor of the model: its own,
  // and that of a correction.
  std::vector<std::string> NamesFor(const std::string& name) const;

  // The tensors that are kept, by name, of a tensor of the model on the host,
  // which may lie in a mapped file.
  TensorMap Encoded(const std::string& name, const Tensor& tensor) const;

  // The tensor that is kept for a frozen tensor of the model.
  TensorSource EncodedFrozen(const std::string& name,
                             const TensorSource& tensor) const;

  // All tensors of the model, weights as floats, from the tensors that are
  // kept.
  SourceMap Decoded(SourceMap kept) const;

 private:
  struct Master {
    std::string correction;  // its name; "": there is none
    DType dtype = DType::kUndefined;
  };
  std::map<std::string, Master> masters_;  // by weight
};

}  // namespace onnx_fp8
