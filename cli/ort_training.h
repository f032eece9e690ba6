// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/temporary_folder.h"
#include "cli/flags.h"
#include "onnx_fp8/session.h"
#include "onnx_fp8/tensor.h"

namespace onnx_fp8 {

// The start of a run from artifacts of onnxruntime-training, in place of a
// model.
class OrtStart {
 public:
  // Reads the folder `ort_training`, and fills the flags in with the facts that
  // it holds: MODEL, the loss, the trained tensors, and the optimizer unless it
  // is given. MODEL is the forward model with the weights of the checkpoint, in
  // a file that lives as long as this. Errors: OptionError if MODEL is given,
  // and for moments if ranks divide state; ReadOrtArtifacts'.
  explicit OrtStart(Flags& flags);

  bool has_moments() const { return !moments_.empty(); }
  // Gives the session the checkpoint's moments and number of updates.
  void GoOn(TrainingSession& session) const;

 private:
  TemporaryFolder folder_;
  TensorMap moments_;  // and the number of updates
};

}  // namespace onnx_fp8
