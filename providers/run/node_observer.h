// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "graph/graph.h"
#include "providers/provider.h"

namespace onnx_fp8 {

// Watches the nodes of an executor's Runs (Executor::set_observer). They run
// one after another then, with the same results. Ops that are views do not run.
class NodeObserver {
 public:
  virtual ~NodeObserver() = default;

  // A Run of this graph begins. Tensors lie in the provider's memory.
  virtual void Begin(const Graph& graph, ExecutionProvider& provider) = 0;
  // The node runs next, or in one call with others. A tensor is not defined if
  // the node omits it.
  virtual void Before(const Node& node, std::span<const Tensor> inputs) = 0;
  virtual void After(const Node& node, std::span<const Tensor> outputs) = 0;
  virtual void End(const Graph& graph) = 0;
};

}  // namespace onnx_fp8
