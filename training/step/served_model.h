// SPDX-License-Identifier: Apache-2.0
//
// The weights of a run as a program that serves the model reads them: the codes
// and scales that the run's next forward computes with.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "data/served_folder.h"
#include "graph/evaluator.h"
#include "graph/fp8/scale_slots.h"
#include "onnx_fp8/session.h"
#include "onnx_fp8/tensor_source.h"
#include "providers/provider.h"
#include "training/step/pipelines.h"
#include "training/step/training_model.h"

namespace onnx_fp8 {

// A run whose weights are served. All must outlive a ServedModel.
struct ServedSource {
  const SessionOptions& options;
  const TrainingModel& model;
  Fp8Spec fp8;  // with the static scales that count now
  // Kept scales with their numbers (ScaleSlot::scale); nullopt: none are laid
  // out yet.
  std::optional<std::vector<ScaleSlot>> slots;
  SourceMap weights;  // by initializer, with adapters merged
  const Evaluator& evaluator;
  PassRunner& runner;
};

// The forward of a run, read from its file anew: FP8 weights are codes, which
// are made on the CPU, one weight after the other, when a file wants them.
class ServedModel {
 public:
  // Errors: the run is of a training step; no layer of it runs in FP8;
  // ImportModel's and BuildServedGraph's.
  explicit ServedModel(ServedSource source);

  // Moves the weights of FP8 layers from `state`, a state_dict, to layers that
  // a served folder can hold. Adds remarks about layers whose weights stay.
  // Errors: all of them stay.
  std::map<std::string, ServedCodes> TakeLayers(
      SourceMap* state, std::vector<std::string>* remarks);

  // Writes the forward with codes and scales as initializers. Call it last:
  // nothing else of the model is there afterwards. Errors: WriteModel's.
  void WriteOnnx(const std::string& path, const WriteOptions& write);

  // ServedGraph's.
  int unknown_attention() const { return served_.unknown_attention; }

  // What a user should know of the codes, however they are written.
  std::vector<std::string> Remarks() const;

 private:
  // Codes, scales and amax by the names of the state.
  TensorMap Make(const FrozenCodes& codes);
  // The codes as the forward reads them. REQUIRES: it does.
  const Value& CodesIn(const FrozenCodes& codes) const;
  // The scale of this name, which was made with the codes that were pulled
  // last, or is made now.
  Tensor ScaleOf(const FrozenCodes& codes, const std::string& name);
  // The layer of codes; nullopt: a folder can't hold it, for this `reason`.
  std::optional<ServedCodes> LayerOf(const FrozenCodes& codes,
                                     std::string* reason);

  const ServedSource source_;
  const std::unique_ptr<ExecutionProvider> provider_;
  ServedGraph served_;
  std::set<const Graph*> fitted_;  // makers that have kernels
  TensorMap scales_;               // made with codes, by name, not pulled yet
};

}  // namespace onnx_fp8
