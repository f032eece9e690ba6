// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "providers/plan/plan.h"
#include "providers/side_queue.h"

namespace onnx_fp8 {

// Steps that a queue beside the provider's own runs as one work.
struct SideCall {
  int begin;     // the position of its first step
  int count;     // the number of its steps
  int needed;    // the position of the first step that must find it done; the
                 // number of all steps: there is none
  bool holds;    // it keeps memory only until it is done
  bool bounded;  // it is awaited before the second call after it that holds
                 // memory begins
};

// The steps beside which a call runs: it begins at position `begin`, and is
// awaited before the step at `end`.
struct Flight {
  int begin, end;
  bool beside;  // false: the next step needs it, or the call is the last step;
                // `end` is `begin`
  size_t before;  // calls before it that run beside other steps
};

// `calls`: of one queue, in the plan's order. They are done one after another.
// `steps`: the number of all steps.
std::vector<Flight> FindFlights(const std::vector<SideCall>& calls, int steps);

// Sets `beside` and `awaits`. `steps`: of the plan.
void MarkFlights(Side side, const std::vector<Flight>& flights,
                 std::vector<Step>* steps);

}  // namespace onnx_fp8
