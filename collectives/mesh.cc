// SPDX-License-Identifier: Apache-2.0
#include "collectives/mesh.h"

#include <charconv>
#include <string_view>
#include <utility>

#include "base/check.h"

namespace onnx_fp8 {
namespace {

struct Axis {
  const char* name;
  int64_t Mesh::*size;
};

constexpr Axis kAxes[] = {{kReplicaRanks, &Mesh::replicate},
                          {kDataRanks, &Mesh::dp},
                          {kTensorRanks, &Mesh::tp}};

// The size that follows "NAME=" in an entry; 0: there is none.
int64_t SizeIn(std::string_view entry, std::string_view name) {
  if (!entry.starts_with(name) || entry.size() == name.size()) return 0;
  if (entry[name.size()] != '=') return 0;
  entry.remove_prefix(name.size() + 1);
  int64_t size = 0;
  const char* end = entry.data() + entry.size();
  const auto [at, error] = std::from_chars(entry.data(), end, size);
  return error == std::errc() && at == end && size <= kMostRanks ? size : 0;
}

}  // namespace

Mesh ParseMesh(const std::string& text) {
  Mesh mesh;
  auto refuse = [&] {
    Fail("expected axes such as dp=4 or dp=2,tp=2 (replicate, dp, tp; at most ",
         kMostRanks, " ranks), got '", text, "'");
  };
  std::string_view rest = text;
  std::string seen;
  while (true) {
    const std::string_view entry = rest.substr(0, rest.find(','));
    const Axis* found = nullptr;
    for (const Axis& axis : kAxes) {
      if (SizeIn(entry, axis.name) > 0) found = &axis;
    }
    if (!found || seen.find(found->name) != std::string::npos) refuse();
    seen += found->name;
    mesh.*found->size = SizeIn(entry, found->name);
    if (mesh.replicate * mesh.dp > kMostRanks || mesh.ranks() > kMostRanks) {
      refuse();
    }
    if (entry.size() == rest.size()) return mesh;
    rest.remove_prefix(entry.size() + 1);
  }
}

std::string ToString(const Mesh& mesh) {
  std::string text;
  for (const Axis& axis : kAxes) {
    if (mesh.*axis.size == 1) continue;
    text += Concat(text.empty() ? "" : ",", axis.name, "=", mesh.*axis.size);
  }
  return text.empty() ? "dp=1" : text;
}

int64_t Mesh::Size(std::string_view name) const {
  for (const Axis& axis : kAxes) {
    if (axis.name == name) return this->*axis.size;
  }
  Fail("expected an axis of a mesh, got ", name);
}

MeshRanks::MeshRanks(const Mesh& mesh, Communicator& world)
    : mesh_(mesh), world_(&world) {
  Check(world.size() == mesh.ranks(), "expected ", mesh.ranks(),
        " ranks for the mesh ", ToString(mesh), ", got ", world.size());
  const int64_t rank = world.rank(), inner = mesh.dp * mesh.tp;
  Add(kReplicaRanks, mesh.replicate, rank % inner);
  Add(kDataRanks, mesh.dp, rank / inner * mesh.tp + rank % mesh.tp);
  Add(kTensorRanks, mesh.tp, rank / mesh.tp);
}

Communicator* MeshRanks::Group(const char* axis) const {
  auto it = groups_.find(axis);
  return it == groups_.end() ? nullptr : it->second;
}

int64_t MeshRanks::shard_rank() const {
  const Communicator* group = Group(kDataRanks);
  return group ? group->rank() : 0;
}

// Ranks of one color are a group.
void MeshRanks::Add(const char* axis, int64_t size, int64_t color) {
  if (size == 1) return;
  if (size == mesh_.ranks()) {
    groups_[axis] = world_;
    return;
  }
  made_.push_back(world_->Split(static_cast<int>(color)));
  groups_[axis] = made_.back().get();
}

}  // namespace onnx_fp8
