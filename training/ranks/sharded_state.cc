// SPDX-License-Identifier: Apache-2.0
#include "training/ranks/sharded_state.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/mapped_file.h"
#include "graph/moment_shapes.h"
#include "optimizers/ema.h"
#include "optimizers/master_format.h"
#include "optimizers/optimizer.h"

namespace onnx_fp8 {

int64_t RowsOfPart(const Shape& whole, int64_t ranks) {
  return (whole[0] + ranks - 1) / ranks;
}

Shard ShardOf(const Shape& whole, int64_t rank, int64_t ranks) {
  Shard shard{.whole = whole, .part = whole};
  const int64_t rows = RowsOfPart(whole, ranks);
  shard.part[0] = rows;
  shard.begin = std::min(rank * rows, whole[0]);
  shard.rows = std::min(rows, whole[0] - shard.begin);
  return shard;
}

ElementPlaces PlacesOf(const Shard& shard) {
  ElementPlaces places;
  if (const auto& part = shard.tensor_part) {
    places = PlacesOfPart(shard.whole, part->split, part->rank, part->ranks);
  }
  const int64_t rows = shard.part.empty() ? 0 : shard.part[0];
  if (rows > 0) places.shift = shard.begin * (NumElements(shard.part) / rows);
  return places;
}

bool CutsMomentBlocks(const Shape& whole, const AxisSplit& split,
                      int64_t ranks) {
  const bool is_last = split.axis + 1 == static_cast<int64_t>(whole.size());
  return is_last && ChunkOf(whole, split, ranks) % kMomentBlock != 0;
}

Tensor PartOf(const Tensor& whole, const Shard& shard) {
  Tensor from = whole;
  if (const auto& part = shard.tensor_part) {
    from = PartOf(whole, part->split, part->rank, part->ranks);
  }
  const size_t row =
      shard.rows > 0 ? from.bytes() / static_cast<size_t>(from.dim(0)) : 0;
  Shape shape = shard.part;
  shape[0] = shard.rows;
  const Tensor rows =
      Tensor::View(from.dtype(), shape, std::make_shared<Tensor>(from),
                   static_cast<std::byte*>(from.raw()) +
                       static_cast<size_t>(shard.begin) * row);
  return WithZeroRows(rows, shard);
}

Tensor WithZeroRows(const Tensor& rows, const Shard& shard) {
  Tensor part = Tensor::Zeros(rows.dtype(), shard.part);
  CopyMapped(rows.raw(), rows.bytes(), part.raw());
  return part;
}

std::map<std::string, Shape> ParametersToShard(const Graph& model) {
  std::map<std::string, Shape> shapes;
  for (const Value* value : model.Initializers()) {
    if (value->role != Role::kParameter || value->rank() == 0) continue;
    if (NumElements(*value->shape) > 0) shapes[value->name] = *value->shape;
  }
  for (const Value* value : model.CapturedBySubgraphs()) {
    shapes.erase(value->name);
  }
  return shapes;
}

ShardedState::ShardedState(const ShardSpec& spec, const MeshRanks* ranks,
                           const Graph& model,
                           std::map<std::string, Shape> parameters)
    : ranks_(ranks), known_(tensor_ranks() == 1), rows_(std::move(parameters)) {
  if (spec.what == Sharding::kNone) return;
  Check(ranks && ranks->mesh().dp > 1, "[", model.file,
        "] expected several ranks for `shard`, got one process");
  if (!known_) return;
  for (const auto& [name, shape] : rows_) Add(model, name, shape);
}

void ShardedState::Add(const Graph& model, const std::string& parameter,
                       const Shape& shape) {
  shapes_[parameter] = shape;
  owner_of_[parameter] = {parameter};
  owner_of_[StateName(model, parameter + kCorrection)] = {parameter};
  owner_of_[StateName(model, parameter + kEma)] = {parameter};
  for (const char* moment : kMoments) {
    const std::string hint = parameter + "." + moment;
    owner_of_[StateName(model, hint)] = {parameter};
    owner_of_[StateName(model, hint + kMomentScale)] = {parameter, true};
  }
}

void ShardedState::Divide(const std::map<std::string, AxisSplit>& splits,
                          Graph* model, StateStore* state) {
  known_ = true;
  std::map<std::string, Shape> shapes = rows_;
  for (const Value* value : model->Initializers()) {
    auto it = splits.find(value->name);
    if (value->role == Role::kNone || it == splits.end()) continue;
    splits_.insert(*it);
    shapes[value->name] = *value->shape;
  }
  for (const auto& [name, shape] : shapes) {
    Add(*model, name, shape);
    model->Find(name)->data = Tensor::Zeros(model->Find(name)->dtype, shape);
  }
  Cut(state);
}

void ShardedState::Cut(StateStore* state) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : state->tensors()) names.push_back(name);
  for (const std::string& name : names) {
    if (auto shard = Find(name)) {
      state->Set(name, PartOf(state->Host(name), *shard));
    }
  }
}

std::optional<Shard> ShardedState::Find(const std::string& name) const {
  auto it = owner_of_.find(name);
  if (it == owner_of_.end()) return std::nullopt;
  const auto& [parameter, scales] = it->second;
  Shape whole = shapes_.at(parameter);
  const auto split = splits_.find(parameter);
  std::optional<TensorPart> part;
  if (split != splits_.end()) {
    const int64_t ranks = ranks_->mesh().tp;
    // The parts keep floats.
    if (scales && CutsMomentBlocks(whole, split->second, ranks)) {
      return std::nullopt;
    }
    part = {split->second, ranks_->tensor_rank(), ranks};
  }
  if (scales) whole = MomentScaleShape(whole);
  Shape divided = whole;
  if (part) divided = PartOf(whole, part->split, part->ranks);
  const Communicator* group =
      rows_.contains(parameter) ? ranks_->Group(kDataRanks) : nullptr;
  Shard shard =
      ShardOf(divided, group ? group->rank() : 0, group ? group->size() : 1);
  shard.whole = whole;
  shard.tensor_part = part;
  return shard;
}

std::map<std::string, Shard> ShardedState::ToWrite(
    const StateStore& state) const {
  std::map<std::string, Shard> shards;
  for (const auto& [name, owner] : owner_of_) {
    if (!state.Has(name)) continue;
    const std::string& parameter = owner.parameter;
    std::optional<Shard> part = Find(name);
    if (!part) continue;
    Shard& shard = *part;
    // The first of the ranks with the same part writes it.
    const int64_t before_data = rows_.contains(parameter)
                                    ? ranks_->data_rank() / ranks_->mesh().dp
                                    : ranks_->data_rank();
    const int64_t before_tensor =
        splits_.contains(parameter) ? 0 : ranks_->tensor_rank();
    if (before_data > 0 || before_tensor > 0) shard.rows = 0;
    shards[name] = shard;
  }
  return shards;
}

TensorSource ShardedState::Source(const StateStore& state,
                                  const std::string& name) const {
  std::optional<Shard> shard = Find(name);
  if (!shard) return state.Source(name);
  return TensorSource(
      state.Get(name).dtype(), shard->whole,
      [this, &state, name, shard] { return Gather(state, name, *shard); });
}

Tensor ShardedState::Gather(const StateStore& state, const std::string& name,
                            const Shard& shard) const {
  Tensor part = state.Host(name);
  if (rows_.contains(owner_of_.at(name).parameter)) {
    Communicator& group = *ranks_->Group(kDataRanks);
    Shape shape = part.shape();
    shape[0] *= group.size();
    Tensor all = Tensor::Allocate(part.dtype(), shape);
    group.AllGather(part.raw(), all.raw(), part.bytes());
    // The rows that do not exist are the last ones.
    shape = shard.whole;
    if (const auto& of = shard.tensor_part) {
      shape = PartOf(shape, of->split, of->ranks);
    }
    part = Tensor::View(all.dtype(), shape, std::make_shared<Tensor>(all),
                        all.raw());
  }
  if (!shard.tensor_part) return part;
  const TensorPart& of = *shard.tensor_part;
  Shape shape = part.shape();
  shape.insert(shape.begin(), of.ranks);
  Tensor all = Tensor::Allocate(part.dtype(), shape);
  ranks_->Group(kTensorRanks)->AllGather(part.raw(), all.raw(), part.bytes());
  Tensor whole = Tensor::Allocate(part.dtype(), shard.whole);
  for (int64_t rank = 0; rank < of.ranks; ++rank) {
    const Tensor one =
        Tensor::View(part.dtype(), part.shape(), std::make_shared<Tensor>(all),
                     static_cast<std::byte*>(all.raw()) +
                         static_cast<size_t>(rank) * part.bytes());
    PutPart(one, of.split, rank, of.ranks, &whole);
  }
  return whole;
}

}  // namespace onnx_fp8
