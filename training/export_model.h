// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "graph/onnx/onnx_io.h"
#include "onnx_fp8/tensor_source.h"
#include "training/training_model.h"

namespace onnx_fp8 {

// Writes the file of `model` to `path` with the tensors of `state`. The update
// of a step goes to ApplyPath(path). With `into`, a step's weights go into that
// model instead. Errors: ExportWithWeights'; `into` for a model that is no
// step.
void ExportModel(const TrainingModel& model, const SourceMap& state,
                 const std::string& path, const WriteOptions& write,
                 const std::string& into);

}  // namespace onnx_fp8
