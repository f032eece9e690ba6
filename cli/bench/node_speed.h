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

// Runs the kernel of a node with constant operands again and again, for at
// least `least` seconds. A provider that can record runs a recording. The host
// waits only once for many runs; else a short kernel would be timed with the
// host's work. A run is `calls` calls of the kernel, each with operands and
// results of its own; they share the workspace. Errors: the kernel's.
NodeTime TimeNode(const Node& node, ExecutionProvider& provider, double least,
                  int64_t calls = 1);

// Times copies within the provider's memory in the same way. A run reads half
// of these bytes and writes the other half.
NodeTime TimeCopy(double bytes, ExecutionProvider& provider, double least);

// Runs the node on `provider` and on `truth`. Returns the largest difference of
// two elements of a result, divided by the largest element of that result. The
// difference of NaN and a number is infinite. Errors: the kernels'.
double Difference(const Node& node, ExecutionProvider& provider,
                  ExecutionProvider& truth);

}  // namespace onnx_fp8
