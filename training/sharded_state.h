// SPDX-License-Identifier: Apache-2.0
//
// State in parts. Of a tensor of n rows (its first axis) each of N ranks keeps
// m = ceil(n / N): rank r the rows from r·m on. Rows that do not exist are
// zero, have the gradient zero, and so stay zero.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "collectives/communicator.h"
#include "graph/graph.h"
#include "onnx_fp8/sharding.h"
#include "onnx_fp8/tensor_source.h"
#include "providers/state_store.h"

namespace onnx_fp8 {

// Rows of a tensor that one rank keeps.
struct Shard {
  Shape whole;        // of the tensor
  int64_t begin = 0;  // first row
  int64_t rows = 0;   // that exist; at most those of the part

  // Of the part, which ends with rows of zeros if `rows` are fewer.
  Shape part;
};

// Rows of each rank's part, those that do not exist included. REQUIRES: rank of
// `whole` at least 1.
int64_t RowsOfPart(const Shape& whole, int64_t ranks);

// REQUIRES: rank of `whole` at least 1.
Shard ShardOf(const Shape& whole, int64_t rank, int64_t ranks);

// The part of a whole tensor on the host, from its row shard.begin on.
Tensor PartOf(const Tensor& whole, const Shard& shard);

// Shapes of the parameters of a model that are kept in parts, by name: trained,
// with an axis and elements, and not read by subgraphs.
std::map<std::string, Shape> ParametersToShard(const Graph& model);

// Shapes of the moments in `step` that belong to sharded parameters, by name.
// `parameters`: as ParametersToShard's. REQUIRES: ShardParameters has run.
std::map<std::string, Shape> MomentsInParts(
    const Graph& step, const std::map<std::string, Shape>& parameters);

// Whether a tensor of a checkpoint is a moment of a sharded parameter: it is
// named after one, as AppendOptimizer names moments, and has its shape.
bool IsMomentOf(const std::map<std::string, Shape>& parameters,
                const std::string& tensor, const Shape& shape);

// The parts of one rank among a session's state tensors. Without ranks, or with
// Sharding::kNone, there are none.
class ShardedState {
 public:
  // `ranks`: of the axis dp; may be null. It must outlive this.
  ShardedState(const ShardSpec& spec, Communicator* ranks, const Graph& model);

  const std::map<std::string, Shape>& parameters() const { return parameters_; }

  // Learns the moments of a planned step.
  void AddMoments(const Graph& step);
  // Learns the moments of a checkpoint.
  void AddMoment(const std::string& name, const Shape& whole);

  // This rank's part; nothing if the tensor is whole on every rank.
  std::optional<Shard> Find(const std::string& name) const;
  // The parts by name, of those tensors that `state` has.
  std::map<std::string, Shard> All(const StateStore& state) const;

  // The whole tensor. If it is in parts, all ranks must pull it at the same
  // time, and each gets it. `state` must outlive the source.
  TensorSource Source(const StateStore& state, const std::string& name) const;

 private:
  Tensor Gather(const StateStore& state, const std::string& name,
                const Shard& shard) const;

  Communicator* ranks_;
  std::map<std::string, Shape> parameters_;
  std::map<std::string, Shape> shapes_;  // of parameters and moments
};

}  // namespace onnx_fp8
