// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "graph/onnx/onnx_io.h"
#include "onnx_fp8/tensor_source.h"

namespace onnx_fp8 {

enum class ExportMode {
  kAsInFile,
  kEvaluation,  // BatchNormalization and Dropout do what they do in evaluation
};

// Writes the model `in` to `out`. The initializers and Constant nodes named in
// `weights` get other contents (same shape; converted to the dtype in the
// file). Everything else but the mode stays, with these exceptions: tensors
// that training has taken apart (graph/passes/separate_tensors.h) become
// initializers of their own, functions that hold one of these tensors are
// inlined, tensors of bodies get unique names if one of these is in a body, and
// graphs of first values go (TrainingInfoProto's initialization), which would
// replace the weights. `options` say where new contents of initializers are
// stored; Constant nodes and bodies keep theirs in the file itself. Errors: an
// initializer that is missing or of another shape, the disk, and WriteModel's.
void ExportWithWeights(const std::string& in, const std::string& out,
                       const SourceMap& weights,
                       const WriteOptions& options = {},
                       ExportMode mode = ExportMode::kAsInFile);

}  // namespace onnx_fp8
