// SPDX-License-Identifier: Apache-2.0
//
// The state of a run as a checkpoint of onnxruntime-training has it: the
// parameters, AdamW's moments and the number of updates.
#pragma once

#include <string>

#include "data/ort_checkpoint.h"
#include "onnx_fp8/optimizer_spec.h"
#include "onnx_fp8/tensor.h"

namespace onnx_fp8 {

// The state of an optimizer of this kind, by the names of a session's state
// (optimizers/optimizer.h). Empty if the checkpoint has none, or another
// optimizer's without such moments. Errors: [where] lacks a moment of a trained
// parameter, or has one of another type.
TensorMap OptimizerState(const OrtCheckpoint& checkpoint,
                         const std::string& kind, const std::string& where);

// Gives `checkpoint` the parameters, the moments and the number of updates of
// `state`, and the learning rate of `spec`. Errors: [where] has a trained
// parameter that the state lacks, or has in another type; the state is Muon's,
// or of an optimizer in a file.
void TakeState(const TensorMap& state, const OptimizerSpec& spec,
               const std::string& where, OrtCheckpoint* checkpoint);

}  // namespace onnx_fp8
