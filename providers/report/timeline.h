// SPDX-License-Identifier: Apache-2.0
//
// A step of one of many ranks on paper: when each node of its plan would run.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "collectives/ring_cost.h"
#include "providers/plan/plan.h"
#include "providers/report/roofline.h"

namespace onnx_fp8 {

// Where the ranks are, and how fast they are.
struct Cluster {
  GpuPeaks gpu;
  Efficiency efficiency = {};
  Network network = {};
  // GPUs from one rank of a group to the next, by name of the group; 1 for
  // groups that are not here.
  std::map<std::string, int64_t> strides = {};
  // Seconds from a node to the next one: torchao measured 2 µs for a kernel
  // that does nothing on an H100 (torchao/testing/training/roofline_utils.py).
  double start = 2e-6;
};

// Nodes of one kind that compute.
struct WorkTotal {
  std::string kind;  // "products in FP8"
  int64_t nodes = 0;
  double seconds = 0;
  double flops = 0;
};

// Calls of one collective in one group.
struct CallsTotal {
  std::string op, group;
  int64_t ranks = 0;
  int64_t calls = 0;
  double node_bytes = 0;  // received by this rank from its node
  double net_bytes = 0;   // from other nodes
  double seconds = 0;
};

struct Timeline {
  double step = 0;           // seconds of all
  double compute = 0;        // of nodes in their turn
  double forward = 0;        // of those before the first node of the backward
  double communication = 0;  // of collectives
  double updates = 0;        // of nodes in the queue of updates
  // Seconds by which collectives, and updates, make the step longer: the main
  // queue waits, or its nodes are slower beside collectives. The rest of both
  // is hidden.
  double exposed = 0, exposed_updates = 0;
  // Operations of products and attention, without the operations that only a
  // fused backward of attention needs: it counts twice its forward.
  double model_flops = 0;
  double host_bytes = 0;        // from the host's memory, and as many to it
  std::vector<WorkTotal> work;  // longest first
  std::vector<CallsTotal> collectives;  // longest first
};

// Nodes compute one after the other in the plan's order. Collectives run one
// after the other beside them. A collective starts when the nodes before it
// have run, so that its operands are ready, and the collective before it; a
// node waits for operands that come from collectives. Collectives that the plan
// joins are one call (Step::together), whose results arrive together.
//
// Updates of state in the host's memory run one after the other in a third
// queue: each starts when the nodes before it have run. Nodes wait for as many
// of them as the plan says (Step::awaits).
//
// A node takes Cluster::start and SecondsOf, a collective CostOfRing. Nodes
// beside a collective lack the multiprocessors that it takes. `seed`: the value
// with which the backward begins; null: there is none.
Timeline Simulate(const Plan& plan, const Cluster& cluster, const Value* seed);

}  // namespace onnx_fp8
