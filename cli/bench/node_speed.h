// SPDX-License-Identifier: Apache-2.0
//
// One node on a provider: how fast it is, and whether it is right.
#pragma once

#include <cstdint>

#include "graph/graph.h"
#include "providers/provider.h"

namespace onnx_fp8 {

struct NodeTime {
  double seconds = 0;  // of one run, the median
  int64_t runs = 0;
};

// Runs the kernel of a node with constant operands again and again, as a
// recording if the provider records. The host waits once for many runs, so
// short nodes don't wait for the host. Measures for at least `least` seconds.
// Errors: those of the kernel.
NodeTime TimeNode(const Node& node, ExecutionProvider& provider, double least);

// The largest difference of a result on the two providers, as a share of that
// result's largest number. NaN counts as infinitely far from numbers. Errors:
// those of the kernels.
double Difference(const Node& node, ExecutionProvider& provider,
                  ExecutionProvider& truth);

}  // namespace onnx_fp8
