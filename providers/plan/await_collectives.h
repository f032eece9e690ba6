// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "providers/plan/chain_collectives.h"
#include "providers/plan/plan_memory.h"

namespace onnx_fp8 {

// The steps beside which a call runs: it begins at position `begin`, and is
// awaited before the step at `end`.
struct Flight {
  int begin, end;
  bool beside;  // false: the next step needs it, or the call is the last step;
                // `end` is `begin`
  size_t before;  // calls before it that run beside other steps
};

// A call is awaited before the first step that reads a result, or that writes
// state that the call reads. Calls are done one after another. A call whose
// operands take more of the arena than its results (ReduceScatter) is awaited
// before the second such call after it, too: at most two of them hold memory
// only to be sent. `memory_of`: index in `memories` of a value. `position`: of
// each step in the plan; steps that run together have one.
std::vector<Flight> AwaitCollectives(
    const std::vector<CollectiveCall>& calls,
    const std::function<int(const Value*)>& memory_of,
    const std::vector<const Node*>& nodes, const std::vector<Memory>& memories,
    const std::vector<int>& position);

// Sets `beside` and `awaits`. `steps`: of the plan.
void MarkFlights(const std::vector<Flight>& flights, std::vector<Step>* steps);

}  // namespace onnx_fp8
