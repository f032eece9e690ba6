// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "data/scaled_weights.h"
#include "graph/parameter_names.h"
#include "onnx_fp8/session.h"
#include "onnx_fp8/tensor_source.h"

namespace onnx_fp8 {

// The transpose of a matrix.
Tensor Transposed(const Tensor& x);

// The same for a source: turned when it is pulled.
TensorSource Transposed(const TensorSource& x);

// Weights by PyTorch's names and in its layout, for load_state_dict. `remarks`
// gets a line for each name or layout that the file had lost.
SourceMap ToTorch(const SourceMap& weights, const ParameterNames& names,
                  std::vector<std::string>* remarks);

// The opposite: arrays by FQN or initializer name become contents of the file's
// initializers, and leave `arrays`. They are turned and converted when they are
// pulled. Errors: another dtype or shape.
SourceMap FromTorch(StoredWeights* arrays,
                    const std::vector<ParameterInfo>& parameters,
                    const ParameterNames& names);

// The array as a tensor of that dtype and shape, `turned` or as it is. Errors:
// it has no float type, or another shape; they name its file, and it by `key`
// and by its name in the file.
TensorSource ValueOf(const StoredWeight& array, const std::string& key,
                     const Shape& shape, DType dtype, bool turned = false);

// "w", or "w (model.w in the file)" if it was renamed.
std::string NameInMessages(const StoredWeight& array, const std::string& key);

}  // namespace onnx_fp8
