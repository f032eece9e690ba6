// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/onnx/onnx_io.h"
#include "onnx_fp8/tensor_source.h"
#include "providers/run/state_store.h"
#include "training/step/served_model.h"
#include "training/step/training_model.h"

namespace onnx_fp8 {

// Writes the file of `model` to `path` with the tensors of `state`, in
// evaluation mode unless it is a step. Adapters are merged into the weights.
// The update of a step goes to ApplyPath(path). With `into`, a step's weights
// go into that model instead. Errors: ExportWithWeights'; `into` for a model
// that is no step.
void ExportModel(const TrainingModel& model, const SourceMap& state,
                 const std::string& path, const WriteOptions& write,
                 const std::string& into);

// The tensors of `weights` as PyTorch's state_dict has them: parameters, with
// adapters merged into them, and the running statistics of BatchNormalization
// with the number of batches that moved them. It is the number before training,
// if `state` or the file tells it, and `batches`. `remarks` gets lines about
// names and layouts that the file had lost.
SourceMap StateDict(const TrainingModel& model, const SourceMap& weights,
                    const StateStore& state, int64_t batches,
                    std::vector<std::string>* remarks);

// Writes them to `path`. Returns the remarks. Errors: WriteSafetensors'.
std::vector<std::string> ExportTorch(const TrainingModel& model,
                                     const SourceMap& weights,
                                     const StateStore& state, int64_t batches,
                                     const std::string& path);

// Writes the weights of `source`, into which no adapters are merged yet, for
// programs that serve the model. `state`, `batches`: as StateDict's. Returns
// remarks for the user. Errors: ServedModel's, WriteServedFolder's,
// WriteModel's.
std::vector<std::string> WriteServed(ServedSource source,
                                     const StateStore& state, int64_t batches,
                                     const ServedFiles& files);

}  // namespace onnx_fp8
