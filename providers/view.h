// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "graph/graph.h"
#include "providers/kernel.h"

namespace onnx_fp8 {

// Whether output 0 can be input 0's memory, so that the kernel does not run:
// the kernel is a view, or the node is a Cast between values that are kept in
// one dtype (passes/store_narrow.h).
inline bool CanBeView(const Node& node, const KernelTraits& traits) {
  return traits.view ||
         (node.Is("Cast") && StoredAs(*node.in(0)) == StoredAs(*node.out(0)));
}

}  // namespace onnx_fp8
