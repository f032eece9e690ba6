// SPDX-License-Identifier: Apache-2.0
//
// Nodes for tests that compare kernels: all that keep floats in 16 bits, with
// sizes that are no multiple of a vector, a block or a tile.
#pragma once

#include <iosfwd>
#include <memory>
#include <span>

#include "graph/graph.h"
#include "providers/kernel.h"

namespace onnx_fp8 {

struct KernelCase {
  const char* name;
  const char* node;  // of the inputs that all cases share
};

void PrintTo(const KernelCase& c, std::ostream* out);

std::span<const KernelCase> KernelCases();

// The node; its results are the graph's outputs.
std::shared_ptr<Graph> GraphOf(const KernelCase& c);

// The node with a RoundTo before each operand that its kernel reads in 16 bits,
// one behind each result that it rounds, and readers of the results.
std::shared_ptr<Graph> RoundedGraph(const KernelCase& c, DType dtype,
                                    const KernelRegistry& kernels);

}  // namespace onnx_fp8
