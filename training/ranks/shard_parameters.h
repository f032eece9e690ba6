// SPDX-License-Identifier: Apache-2.0
//
// Parameters of a step in parts, which all-gathers join and reduce-scatters
// divide; sharded_state.h.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "collectives/mesh.h"
#include "graph/builder.h"
#include "graph/graph.h"
#include "onnx_fp8/sharding.h"

namespace onnx_fp8 {

struct ShardOptions {
  ShardSpec spec;
  Mesh mesh = {};  // ranks of the axis dp divide the parameters
  // See ParametersToShard. Parameters that the graph lacks are ignored.
  const std::map<std::string, Shape>* parameters = nullptr;
  // The seed of the backward; null: there is none.
  const Value* seed = nullptr;
};

using ParameterGradients = std::vector<std::pair<Value*, Value*>>;

// Replaces the parameters by parts of them, under the same names. All-gathers
// make the whole parameter before the first node that reads it; with
// kParameters, another one before the first node of the backward does, unless
// no matrix of parameters is read in between: the last layer's stays. Values
// computed from whole parameters alone are computed again in the backward.
//
// A weight that QuantizeTensor or QuantizeWith reads is quantized in parts
// (QuantizeAmax) and gathered as FP8, if spec.gather allows it. The amaxes of
// all such weights are measured on the parts and combined in one all-reduce.
// Bytes, scales and amaxes equal the whole tensor's.
//
// `gradients`: (parameter, its gradient). The parameters become the parts.
// Gradients are added over the ranks, by reduce-scatters behind the nodes that
// make them, unless `whole_gradients`. REQUIRES: known shapes.
void ShardParameters(Graph& graph, const ShardOptions& options,
                     ParameterGradients* gradients, bool whole_gradients);

// The tensor of that shape, of which each rank has its part, and the part of
// rank `rank`, with zeros behind the last rows.
Value* JoinParts(Builder& b, Value* part, const Shape& whole, const Mesh& mesh);
Value* PartOfRank(Builder& b, Value* whole, int64_t rank, const Mesh& mesh);

// Part of the sum over the ranks of a whole gradient. Nodes go before `before`,
// or at the end.
Value* ReduceToShard(Graph& graph, Value* gradient, const Mesh& mesh,
                     Node* before = nullptr);

}  // namespace onnx_fp8
