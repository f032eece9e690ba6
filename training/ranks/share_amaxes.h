// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>
#include <string>
#include <vector>

#include "collectives/mesh.h"
#include "graph/builder.h"
#include "graph/graph.h"
#include "training/ranks/over_ranks.h"

namespace onnx_fp8 {

// A tensor of which the ranks of the axis tp have parts (split_layers.h) gets
// the scale of the whole tensor: QuantizeTensor of a part becomes Amax, a
// maximum over the ranks and QuantizeAmax. The maximum of all weights is one
// all-reduce before everything else. A tensor that is joined and then quantized
// is quantized first, and travels as FP8. (Others travel in the 16 bits in
// which they are kept, if they are.)
//
// `parts`: the values that differ between ranks at the start. What depends on
// them is in parts, but for results of AllReduce and AllGather over tp.
// Quantizers with a scale per row, column or block keep the scales of the part.
// QuantizeWith of an activation that does not travel becomes QuantizeAmax, too,
// with `new_scales`: the kept scales may be 0, so the step's own amax counts.
void ShareAmaxes(Graph& graph, const Mesh& mesh,
                 const std::set<std::string>& parts, bool new_scales);

// --- parts of tensors that are quantized with the scales of the whole tensors

// Whether the node quantizes a tensor by one scale, measured or given.
bool QuantizesByOneScale(const Node& node);

// The amax of each whole tensor, from this rank's parts, in one all-reduce for
// each of `axes`. REQUIRES: at least one part.
std::vector<Value*> AmaxesOfWholes(Builder& b, const std::vector<Value*>& parts,
                                   const Mesh& mesh, const Axes& axes);

// Adds a QuantizeAmax of `part` in front of `quantizer`, a node that
// QuantizesByOneScale the whole tensor or the part. The new node takes over the
// scale and the amax of `quantizer`, which the caller removes. Returns the
// codes.
Value* QuantizePart(Graph& graph, Node* quantizer, Value* part, Value* amax);

}  // namespace onnx_fp8
