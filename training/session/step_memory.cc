// SPDX-License-Identifier: Apache-2.0
#include "training/session/step_memory.h"

#include <algorithm>
#include <map>

#include "base/check.h"

namespace onnx_fp8 {
namespace {

class Adder {
 public:
  void Add(const PlannedStep& planned) {
    Add(planned.executor->plan());
    if (planned.quantizer) Add(planned.quantizer->plan());
  }
  StepMemory Sum() {
    for (const auto& [name, bytes] : state_) memory_.state += bytes;
    return memory_;
  }

 private:
  void Add(const Plan& plan) {
    memory_.arena = std::max(memory_.arena, plan.arena_bytes);
    for (const Value* value : plan.states) {
      state_[value->name] = BytesOf(*value);
    }
    for (const auto* values : {&plan.feeds, &plan.constants}) {
      for (const Value* value : *values) memory_.others += BytesOf(*value);
    }
    // A recorded step keeps its results and hands out copies.
    for (const Value* value : plan.fetched) {
      memory_.others += 2 * BytesOf(*value);
    }
  }

  StepMemory memory_;
  std::map<std::string, size_t> state_;  // by name
};

std::string Mebibytes(size_t bytes) {
  return Concat((bytes + (1 << 20) - 1) >> 20, " MiB");
}

[[noreturn]] void FailWithoutRoom(const StepMemory& steps,
                                  const DeviceMemory& device) {
  Fail("expected ", steps.total(), " bytes of GPU memory for a step (",
       steps.arena, " for results and workspaces, ", steps.state,
       " for state, ", steps.others, " for batch, constants and outputs), got ",
       device.free, " free of ", device.total,
       "; a smaller `batch_size` with a larger `grad_accum`, `dtype` bfloat16, "
       "and ranks that divide the state (`shard`) need less");
}

}  // namespace

StepMemory MemoryOf(const PlanCache& plans, const PlannedStep& next) {
  Adder adder;
  adder.Add(next);
  for (const PlannedStep& planned : plans.plans()) adder.Add(planned);
  return adder.Sum();
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

}  // namespace onnx_fp8
