// SPDX-License-Identifier: Apache-2.0
//
// Whether the plans of a session have room in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "collectives/mesh.h"
#include "providers/plan/plan.h"
#include "providers/provider.h"
#include "providers/run/state_places.h"
#include "training/session/plan_cache.h"
#include "training/step/fit_memory.h"

namespace onnx_fp8 {

// The bytes that planned steps need of the memory.
struct StepMemory {
  size_t arena = 0;   // results and workspaces: one block, which they share
  size_t state = 0;   // parameters, moments, scales; shared by name
  size_t others = 0;  // batches, constants and outputs of each
  // State that lies outside of the provider's memory; it is no part of `state`.
  size_t outside = 0;

  size_t total() const { return arena + state + others; }
};

// Adds up a session's memory.
class StepMemorySum {
 public:
  // `records`: whether a step keeps its results and hands out copies, as one
  // that is recorded does.
  explicit StepMemorySum(bool records, StatePlaces places = {})
      : records_(records), places_(std::move(places)) {}

  // State that is there, whether or not a plan reads it. A plan that is added
  // later knows better how large its state will be.
  void AddState(const TensorMap& state);
  void Add(const PlannedStep& planned);
  // A plan that does not exist yet. `copies`: the graph that makes some of its
  // feeds; null: none does.
  void Add(const Plan& plan, const Graph* copies);
  // The plan that makes copies of weights: micro steps read its outputs.
  void AddCopies(const Plan& plan);

  StepMemory Sum() const;

 private:
  void AddShared(const Plan& plan);

  bool records_;
  StatePlaces places_;
  StepMemory memory_;
  std::set<const Quantizer*> quantizers_;
  std::map<std::string, size_t> state_;  // by name
};

// The memory of a session: of all that it holds besides plans, the plans, and
// the next one.
StepMemory MemoryOf(StepMemorySum held, const std::list<PlannedStep>& plans,
                    const PlannedStep& next);

// "a step needs …; the GPU had …". Errors: it had too little.
std::string CheckRoom(const StepMemory& steps, const DeviceMemory& device);

// Errors: a plan of that kind needs more than the limit, without all others.
void CheckLimit(size_t bytes, const StepLimit& limit, StepKind kind);

// Drops the oldest plans until the next one fits beside the others. Returns
// whether it dropped any.
bool MakeRoom(const StepMemorySum& held, const PlannedStep& next,
              const StepLimit& limit, PlanCache* plans);

// The largest number of all ranks. All ranks call this and the next functions
// at the same time.
template <typename T>
T MostOfRanks(const MeshRanks& ranks, T mine) {
  auto most = static_cast<int64_t>(mine);
  ranks.world().AllReduce(Reduction::kMax, DType::kInt64, &most, &most, 1);
  return static_cast<T>(most);
}

// The first rank whose inputs have the most elements.
int RankOfLargest(const MeshRanks& ranks, const PlanKey& key);

// Every rank gets the fit that `find` finds on the rank `from`. Errors: on all
// ranks, the error of `find`.
MemoryFit FitOfRank(const MeshRanks& ranks, int from,
                    const std::function<MemoryFit()>& find);

}  // namespace onnx_fp8
