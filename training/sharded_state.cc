// SPDX-License-Identifier: Apache-2.0
#include "training/sharded_state.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "graph/op_facts.h"

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

Tensor PartOf(const Tensor& whole, const Shard& shard) {
  Tensor part = Tensor::Zeros(whole.dtype(), shard.part);
  if (shard.rows == 0) return part;
  const size_t row = whole.bytes() / static_cast<size_t>(whole.dim(0));
  std::memcpy(part.raw(),
              static_cast<const std::byte*>(whole.raw()) +
                  static_cast<size_t>(shard.begin) * row,
              static_cast<size_t>(shard.rows) * row);
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

std::map<std::string, Shape> MomentsInParts(
    const Graph& step, const std::map<std::string, Shape>& parameters) {
  std::map<std::string, Shape> shapes;
  for (const Node& node : step.nodes()) {
    if (FactsOf(node).kind != OpKind::kParameterUpdate) continue;
    auto it = parameters.find(node.in(0)->name);
    if (it == parameters.end()) continue;
    for (const Value* in : node.inputs()) {
      if (in && in->role == Role::kMoment) shapes[in->name] = it->second;
    }
  }
  return shapes;
}

bool IsMomentOf(const std::map<std::string, Shape>& parameters,
                const std::string& tensor, const Shape& shape) {
  return std::ranges::any_of(parameters, [&](const auto& parameter) {
    return tensor.starts_with(parameter.first + ".") &&
           parameter.second == shape && !parameters.contains(tensor);
  });
}

ShardedState::ShardedState(const ShardSpec& spec, Communicator* ranks,
                           const Graph& model)
    : ranks_(ranks) {
  if (spec.what == Sharding::kNone) return;
  Check(ranks != nullptr, "[", model.file,
        "] expected several ranks for `shard`, got one process");
  parameters_ = ParametersToShard(model);
  shapes_ = parameters_;
}

void ShardedState::AddMoments(const Graph& step) {
  shapes_.merge(MomentsInParts(step, parameters_));
}

void ShardedState::AddMoment(const std::string& name, const Shape& whole) {
  if (IsMomentOf(parameters_, name, whole)) shapes_[name] = whole;
}

std::optional<Shard> ShardedState::Find(const std::string& name) const {
  auto it = shapes_.find(name);
  if (it == shapes_.end()) return std::nullopt;
  return ShardOf(it->second, ranks_->rank(), ranks_->size());
}

std::map<std::string, Shard> ShardedState::All(const StateStore& state) const {
  std::map<std::string, Shard> shards;
  for (const auto& [name, whole] : shapes_) {
    if (state.Has(name)) shards[name] = *Find(name);
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
  Shape padded = part.shape();
  padded[0] *= ranks_->size();
  Tensor all = Tensor::Allocate(part.dtype(), padded);
  ranks_->AllGather(part.raw(), all.raw(), part.bytes());
  // The rows that do not exist are the last ones.
  return Tensor::View(all.dtype(), shard.whole, std::make_shared<Tensor>(all),
                      all.raw());
}

}  // namespace onnx_fp8
