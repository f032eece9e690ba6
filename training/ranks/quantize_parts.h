// SPDX-License-Identifier: Apache-2.0
//
// Parts of tensors that are quantized with the scales of the whole tensors.
#pragma once

#include <vector>

#include "graph/builder.h"
#include "training/ranks/over_ranks.h"

namespace onnx_fp8 {

// The amax of each whole tensor, from this rank's parts, in one all-reduce for
// each of `axes`. REQUIRES: at least one part.
std::vector<Value*> AmaxesOfWholes(Builder& b, const std::vector<Value*>& parts,
                                   const Mesh& mesh, const Axes& axes);

// Adds a QuantizeAmax of `part` in front of `quantizer`, a QuantizeTensor or
// QuantizeWith of the whole tensor or of the part. It takes over the scale and
// the amax of `quantizer`, which the caller removes. Returns the codes.
Value* QuantizePart(Graph& graph, Node* quantizer, Value* part, Value* amax);

}  // namespace onnx_fp8
