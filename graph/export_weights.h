// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "graph/onnx_io.h"
#include "onnx_fp8/tensor_source.h"

namespace onnx_fp8 {

// Writes the model `in` to `out` with other contents for the initializers and
// Constant nodes named in `weights` (same shape; converted to the dtype the
// file has) and everything else as it was, but that functions are inlined if
// they hold one of them, and that tensors of bodies get names of their own if
// these do. New contents of initializers are stored as `options` say, those of
// Constant nodes and of bodies in the file itself. Errors: an initializer that
// is not there or of another shape, the disk, and WriteModel's.
void ExportWithWeights(const std::string& in, const std::string& out,
                       const SourceMap& weights,
                       const WriteOptions& options = {});

}  // namespace onnx_fp8
