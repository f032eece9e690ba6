// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "onnx_fp8/profile_report.h"

namespace onnx_fp8 {

// Kernels, copies and clears of a device that belong to one node, or to nodes
// that run together. Sums over a step, in milliseconds.
struct TimelineNode {
  // Describes the first of the nodes. `calls` counts kernels, copies and
  // clears; `milliseconds` is the device's time in them. Work without a node
  // has the kernel's name as `node.node`, and one of these roles: "inputs and
  // results" (copies outside of the recorded step), "not recorded", "not
  // matched".
  NodeProfile node;
  double least = 0;   // of all the nodes, by the roofline; 0: not known
  double gap = 0;     // in which the device waited for it, inside a launch
  double beside = 0;  // in which another stream worked, too
};

// What a device did in some steps, without anybody waiting for a kernel. All
// figures are means over the steps.
struct TimelineReport {
  int64_t steps = 0;        // 0: the run had too few
  double milliseconds = 0;  // of the device, from its first work to its last
  double host = 0;          // milliseconds in which the host starts a step
  double idle = 0;          // milliseconds of the device between two launches
  std::string gpu;          // whose peaks `least` is for; "": not known
  std::vector<TimelineNode> nodes;  // longest first
  // Records that are missing, and work that was not matched to nodes.
  std::vector<std::string> notes;
};

}  // namespace onnx_fp8
