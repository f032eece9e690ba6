// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace onnx_fp8 {

// The speeds that a machine reaches, per second.
struct MachinePeaks {
  double flops = 0;            // of float products
  double eight_bit_flops = 0;  // of products of 8-bit floats
  double bytes = 0;            // to and from memory
};

// One node of the training graphs; all figures are sums over a step.
struct NodeProfile {
  std::string node, op;
  // Its purpose: "forward", "dgrad" and "wgrad" are matrix products of linear
  // layers; "quantize", "norm", "attention", "optimizer"; "other".
  std::string role;
  std::string fqn;    // of the weight it belongs to, if a node tells
  std::string shape;  // of the first result, "float[2048,256]"
  double calls = 0;
  double milliseconds = 0;
  double flops = 0, bytes = 0;  // graph/node_cost.h
  // Bytes that the node reads from the host's memory. It writes as many there.
  double host_bytes = 0;
  bool eight_bit = false;  // multiplies 8-bit floats
};

// Times of collectives, and how much of them the host has waited. The rest was
// hidden behind other nodes. In any unit.
struct TransferTimes {
  double all = 0, exposed = 0;

  double hidden() const { return all > exposed ? all - exposed : 0; }
};

struct ProfileReport {
  // The figures are means over this many steps. The first step of a run, which
  // plans and finds cold caches, counts only if it is the only one.
  int64_t steps = 0;
  bool cold = false;               // the figures are the first step's
  double milliseconds = 0;         // of a whole step, between its nodes too
  TransferTimes transfers;         // milliseconds
  std::vector<NodeProfile> nodes;  // longest first
};

}  // namespace onnx_fp8
