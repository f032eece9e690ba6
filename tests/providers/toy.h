// SPDX-License-Identifier: Apache-2.0
//
// A provider of toy ops whose results depend on every bit of every operand, so
// that any mistake with memory shows; and a way to run graphs without a plan.
#pragma once

#include <memory>

#include "graph/graph.h"
#include "providers/provider.h"
#include "providers/run/executor.h"

namespace onnx_fp8 {

// Ops of the ONNX domain, with any number of inputs of uint32 or uint64:
//   View  (x, …) → y           y is x under another shape
//   Hash  (…) → (…)            may not work in place
//   Work  (…) → (…)            the same, and spoils a workspace of 100 bytes
//   Near  (a, b, …) → y        in place on a or b
//   Update (p, g, m) → (p', m')  in place on p and m
//   Twins (x) → (y, z)         either one in place on x
//   Sized (x, n) → y           reads n on the host
//   Throw () → y               fails
//   Break (x) → y              in place; fails when half done
// `together`: nodes of one op run together where they can.
std::unique_ptr<ExecutionProvider> MakeToyProvider(bool together = false);

// Runs every node in the order of the graph, each result in memory of its own,
// and then assigns all state.
TensorMap RunNaively(const Graph& graph, const KernelRegistry& kernels,
                     const TensorMap& feeds, TensorMap& state);

// A graph of toy ops: views of everything, states bound to any values that fit,
// outputs of all kinds. The same seed gives the same graph.
std::unique_ptr<Graph> RandomGraph(uint64_t seed, int nodes);

// Content that depends on seed and index only.
Tensor RandomTensor(DType dtype, const Shape& shape, uint64_t seed);

}  // namespace onnx_fp8
