// SPDX-License-Identifier: Apache-2.0
#include "training/session/step_room.h"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "base/check.h"

namespace onnx_fp8 {
namespace {

std::string Mebibytes(size_t bytes) {
  return Concat((bytes + (1 << 20) - 1) >> 20, " MiB");
}

nlohmann::json ToJson(const MemoryFit& fit) {
  return {{"is_searched", fit.is_searched},
          {"limit", fit.limit},
          {"reserve", fit.reserve},
          {"before", fit.before},
          {"after", fit.after},
          {"again", fit.again},
          {"as_blocks", fit.as_blocks},
          {"joins_weights", fit.execution.joins_weights},
          {"gathers_ahead", fit.execution.gathers_ahead},
          {"attention_workspace", fit.execution.attention_workspace},
          {"ops", fit.ops},
          {"blocks", fit.blocks},
          {"time_share", fit.time_share},
          {"hints", fit.hints}};
}

MemoryFit FromJson(const nlohmann::json& json) {
  MemoryFit fit;
  json.at("is_searched").get_to(fit.is_searched);
  json.at("limit").get_to(fit.limit);
  json.at("reserve").get_to(fit.reserve);
  json.at("before").get_to(fit.before);
  json.at("after").get_to(fit.after);
  json.at("again").get_to(fit.again);
  json.at("as_blocks").get_to(fit.as_blocks);
  json.at("joins_weights").get_to(fit.execution.joins_weights);
  json.at("gathers_ahead").get_to(fit.execution.gathers_ahead);
  json.at("attention_workspace").get_to(fit.execution.attention_workspace);
  json.at("ops").get_to(fit.ops);
  json.at("blocks").get_to(fit.blocks);
  json.at("time_share").get_to(fit.time_share);
  json.at("hints").get_to(fit.hints);
  return fit;
}

[[noreturn]] void FailWithoutRoom(const StepMemory& steps,
                                  const DeviceMemory& device) {
  Fail("expected ", steps.total(), " bytes of GPU memory for a step (",
       steps.arena, " for results and workspaces, ", steps.state,
       " for state, ", steps.others, " for batch, constants and outputs), got ",
       device.free, " free of ", device.total,
       "; a smaller `batch_size` with a larger `grad_accum`, `dtype` bfloat16, "
       "`offload=optimizer` and ranks that divide the state (`shard`) need "
       "less");
}

}  // namespace

void StepMemorySum::AddState(const TensorMap& state) {
  for (const auto& [name, tensor] : state) state_[name] = tensor.bytes();
}

void StepMemorySum::Add(const PlannedStep& planned) {
  const Quantizer* quantizer = planned.quantizer.get();
  Add(planned.executor->plan(), quantizer ? &quantizer->graph() : nullptr);
  if (quantizer && quantizers_.insert(quantizer).second) {
    AddCopies(quantizer->executor().plan());
  }
}

void StepMemorySum::Add(const Plan& plan, const Graph* copies) {
  AddShared(plan);
  for (const Value* feed : plan.feeds) {
    const bool copy = copies && copies->Find(feed->name);
    if (!copy) memory_.others += BytesOf(*feed);
  }
  for (const Value* value : plan.fetched) {
    memory_.others += (records_ ? 2 : 1) * BytesOf(*value);
  }
}

void StepMemorySum::AddCopies(const Plan& plan) {
  AddShared(plan);
  for (const Value* value : plan.fetched) memory_.others += BytesOf(*value);
}

StepMemory StepMemorySum::Sum() const {
  StepMemory memory = memory_;
  for (const auto& [name, bytes] : state_) {
    const bool outside = places_.IsOutside(name, bytes);
    (outside ? memory.outside : memory.state) += bytes;
  }
  return memory;
}

void StepMemorySum::AddShared(const Plan& plan) {
  memory_.arena = std::max(memory_.arena, plan.arena_bytes);
  for (const Value* value : plan.states) {
    state_[value->name] = BytesOf(*value);
  }
  for (const Value* value : plan.constants) {
    memory_.others += BytesOf(*value);
  }
}

StepMemory MemoryOf(StepMemorySum held, const std::list<PlannedStep>& plans,
                    const PlannedStep& next) {
  for (const PlannedStep& planned : plans) held.Add(planned);
  held.Add(next);
  return held.Sum();
}

std::string CheckRoom(const StepMemory& steps, const DeviceMemory& device) {
  if (steps.total() > device.free) FailWithoutRoom(steps, device);
  return Concat("a step needs ", Mebibytes(steps.arena),
                " for results and workspaces, in one block, ",
                Mebibytes(steps.state), " for state and ",
                Mebibytes(steps.others),
                " for batch, constants and outputs; the GPU had ",
                Mebibytes(device.free), " free of ", Mebibytes(device.total));
}

void CheckLimit(size_t bytes, const StepLimit& limit, StepKind kind) {
  bytes += limit.reserve;
  MemoryFit fit = {.limit = limit.bytes,
                   .reserve = limit.reserve,
                   .before = bytes,
                   .after = bytes};
  if (kind == StepKind::kEval) {
    fit.plan = "an evaluation";
    fit.hints =
        "a smaller `val_batch_size` needs less, or, without one, a smaller "
        "`batch_size`";
  }
  if (!fit.fits()) fit.Refuse();
}

bool MakeRoom(const StepMemorySum& held, const PlannedStep& next,
              const StepLimit& limit, PlanCache* plans) {
  const size_t before = plans->plans().size();
  while (!plans->plans().empty() &&
         MemoryOf(held, plans->plans(), next).total() + limit.reserve >
             limit.bytes) {
    plans->DropOldest();
  }
  return plans->plans().size() < before;
}

int RankOfLargest(const MeshRanks& ranks, const PlanKey& key) {
  const int64_t size = ranks.world().size();
  int64_t most = 0;
  for (const auto& [name, shape] : key.shapes) most += NumElements(shape);
  // The first one of equal ranks has the largest number.
  most = MostOfRanks(ranks, most * size + size - 1 - ranks.world().rank());
  return static_cast<int>(size - 1 - most % size);
}

MemoryFit FitOfRank(const MeshRanks& ranks, int from,
                    const std::function<MemoryFit()>& find) {
  using Json = nlohmann::json;
  Json json;
  if (ranks.world().rank() == from) {
    try {
      json = ToJson(find());
    } catch (const Error& error) {
      json = {{"error", error.what()}};
    }
  }
  std::string bytes;
  Json::to_cbor(json, bytes);
  auto size = static_cast<int64_t>(bytes.size());
  ranks.world().Broadcast(&size, sizeof size, from);
  bytes.resize(static_cast<size_t>(size));
  ranks.world().Broadcast(bytes.data(), bytes.size(), from);
  json = Json::from_cbor(bytes);
  if (json.contains("error")) Fail(json["error"].get<std::string>());
  return FromJson(json);
}

}  // namespace onnx_fp8
