// SPDX-License-Identifier: Apache-2.0
#include "training/memory_remark.h"

#include <algorithm>
#include <map>

#include "base/check.h"

namespace onnx_fp8 {

std::string MemoryRemark(const PlanCache& plans, const DeviceMemory& memory) {
  size_t arena = 0, bytes = 0;
  std::map<std::string, size_t> state;  // plans share it by name
  for (const PlannedStep& planned : plans.plans()) {
    const Plan& plan = planned.executor->plan();
    arena = std::max(arena, plan.arena_bytes);
    for (const Value* value : plan.states) state[value->name] = BytesOf(*value);
  }
  for (const auto& [name, size] : state) bytes += size;
  auto mebibytes = [](size_t size) {
    return Concat((size + (1 << 20) - 1) >> 20, " MiB");
  };
  return Concat("a step needs ", mebibytes(arena), " for results and ",
                mebibytes(bytes), " for state; the GPU had ",
                mebibytes(memory.free), " free of ", mebibytes(memory.total));
}

}  // namespace onnx_fp8
