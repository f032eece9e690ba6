// SPDX-License-Identifier: Apache-2.0
//
// The ranks of a job as a box with three axes. A rank trains with the samples
// of its place on the axes replicate and dp; ranks of one tp group share the
// samples and divide the layers.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/communicator.h"

namespace onnx_fp8 {

// Names of the axes, and of their groups in attributes of nodes.
inline constexpr char kReplicaRanks[] = "replicate";
inline constexpr char kDataRanks[] = "dp";
inline constexpr char kTensorRanks[] = "tp";

// Sizes of the axes. Rank r has the place (r / (dp · tp), r / tp mod dp,
// r mod tp): neighbors, which a fast network joins, are on the axis tp.
struct Mesh {
  int64_t replicate = 1;  // groups of dp · tp ranks that hold the same state
  int64_t dp = 1;         // ranks that may divide the state (sharding.h)
  int64_t tp = 1;         // ranks that divide the layers

  int64_t ranks() const { return replicate * dp * tp; }
  // Ranks with samples of their own.
  int64_t data_ranks() const { return replicate * dp; }

  // The size of the axis `name`. REQUIRES: there is such an axis.
  int64_t Size(std::string_view name) const;

  bool operator==(const Mesh&) const = default;
};

// The most ranks of a mesh.
inline constexpr int64_t kMostRanks = 65536;

// "replicate=R,dp=N,tp=T": each axis at most once, in any order; an absent axis
// has the size 1. Errors: other text; more than kMostRanks.
Mesh ParseMesh(const std::string& text);

// The text of a mesh, without axes of size 1; "dp=1" for one rank.
std::string ToString(const Mesh& mesh);

// A rank's place in a mesh, and its groups.
class MeshRanks {
 public:
  // All ranks make theirs at the same time. `world` must outlive it.
  // REQUIRES: world.size() == mesh.ranks().
  MeshRanks(const Mesh& mesh, Communicator& world);

  const Mesh& mesh() const { return mesh_; }
  Communicator& world() const { return *world_; }
  // Groups of the axes with several ranks.
  const Groups& groups() const { return groups_; }
  // The group of an axis; null: this rank is alone on it.
  Communicator* Group(const char* axis) const;

  // Place among the ranks with samples of their own, in 0…data_ranks() - 1.
  int64_t data_rank() const { return world_->rank() / mesh_.tp; }
  // Place among the ranks that divide the layers.
  int64_t tensor_rank() const { return world_->rank() % mesh_.tp; }
  // This rank's place on the axis dp, 0…dp - 1. The ranks of that axis divide
  // state.
  int64_t shard_rank() const;

 private:
  void Add(const char* axis, int64_t size, int64_t color);

  Mesh mesh_;
  Communicator* world_;
  std::vector<std::unique_ptr<Communicator>> made_;
  Groups groups_;
};

}  // namespace onnx_fp8
