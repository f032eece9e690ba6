// SPDX-License-Identifier: Apache-2.0
//
// State in parts. The ranks of the axis tp divide the tensors of their layers
// (axis_split.h). What a rank then has, n rows along the first axis, the N
// ranks of the axis dp divide: each keeps m = ceil(n / N), rank r the rows from
// r·m on. Rows that do not exist are zero, have the gradient zero, and so stay
// zero.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/check.h"
#include "collectives/mesh.h"
#include "graph/graph.h"
#include "onnx_fp8/sharding.h"
#include "onnx_fp8/tensor_source.h"
#include "providers/run/state_store.h"
#include "training/ranks/axis_split.h"

namespace onnx_fp8 {

// The part of rank `rank` of the axis tp.
struct TensorPart {
  AxisSplit split;
  int64_t rank = 0;
  int64_t ranks = 1;
};

// The part of a tensor that one rank keeps.
struct Shard {
  Shape whole;  // of the tensor
  // The part that is divided by rows; nothing: the whole tensor.
  std::optional<TensorPart> tensor_part = {};
  int64_t begin = 0;  // first row
  int64_t rows = 0;   // that exist; at most those of `part`

  // What the rank keeps. It ends with rows of zeros if `rows` are fewer.
  Shape part;
};

// Rows of each rank's part, including rows that do not exist. REQUIRES: rank of
// `whole` at least 1.
int64_t RowsOfPart(const Shape& whole, int64_t ranks);

// Without a division on the axis tp. REQUIRES: rank of `whole` at least 1.
Shard ShardOf(const Shape& whole, int64_t rank, int64_t ranks);

// The places of the part's elements in the whole tensor.
ElementPlaces PlacesOf(const Shard& shard);

// Whether a part of a tensor of that shape on the axis tp begins or ends within
// a block of kMomentBlock elements. (Parts of rows never do.)
bool CutsMomentBlocks(const Shape& whole, const AxisSplit& split,
                      int64_t ranks);

// The part of a whole tensor on the host, which may lie in a mapped file.
Tensor PartOf(const Tensor& whole, const Shard& shard);

// `rows` of the shard, on the host, as the part that the rank keeps. They may
// lie in a mapped file (CopyMapped).
Tensor WithZeroRows(const Tensor& rows, const Shard& shard);

// Shapes of the parameters of a model that are kept in parts, by name: trained,
// with an axis and elements, and not read by subgraphs.
std::map<std::string, Shape> ParametersToShard(const Graph& model);

// The parts of one rank among a session's state tensors. One process has none.
class ShardedState {
 public:
  // `ranks` may be null. It must outlive this. `parameters`: ParametersToShard
  // of the model if `spec` divides them; else empty. Errors: `spec` divides the
  // state of one rank.
  ShardedState(const ShardSpec& spec, const MeshRanks* ranks,
               const Graph& model, std::map<std::string, Shape> parameters);

  // Whether ranks keep parts of tensors.
  bool is_shared() const { return !rows_.empty() || tensor_ranks() > 1; }

  // Whether it is known which tensors are in parts. Until then all are whole.
  bool is_known() const { return known_; }
  // Learns the parts of the model's parameters on the axis tp. State, which was
  // whole, becomes this rank's parts. The model keeps shapes and no numbers.
  void Divide(const std::map<std::string, AxisSplit>& splits, Graph* model,
              StateStore* state);

  // This rank's part; nothing if the tensor is whole on every rank.
  std::optional<Shard> Find(const std::string& name) const;
  // The parts by name that this rank writes into a checkpoint, of those tensors
  // that `state` has. Parts that another rank writes have no rows.
  std::map<std::string, Shard> ToWrite(const StateStore& state) const;

  // The whole tensor. If it is in parts, all ranks must pull it at the same
  // time, and each gets it. `state` must outlive the source.
  TensorSource Source(const StateStore& state, const std::string& name) const;

 private:
  void Add(const Graph& model, const std::string& parameter,
           const Shape& shape);
  void Cut(StateStore* state);
  int64_t tensor_ranks() const { return ranks_ ? ranks_->mesh().tp : 1; }
  Tensor Gather(const StateStore& state, const std::string& name,
                const Shard& shard) const;

  const MeshRanks* ranks_;
  bool known_ = true;
  std::map<std::string, Shape> rows_;        // parameters that dp divides
  std::map<std::string, AxisSplit> splits_;  // parameters that tp divides
  // By a parameter in parts, its correction, its average, or the state that is
  // kept for the moments of any optimizer.
  struct Owner {
    std::string parameter;
    bool scales = false;  // whether the state is scales of codes
  };
  std::map<std::string, Owner> owner_of_;
  std::map<std::string, Shape> shapes_;  // of these parameters
};

// The name of a state of a session: `hint`, with a number if the session's
// model has a value of that name. All graphs of the session know the state by
// it, whatever else they hold.
inline std::string StateName(const Graph& model, const std::string& hint) {
  std::string name = hint;
  for (int i = 1; model.Find(name); ++i) name = Concat(hint, "_", i);
  return name;
}

}  // namespace onnx_fp8
