// SPDX-License-Identifier: Apache-2.0
#include "training/step/gradient_outputs.h"

#include "graph/builder.h"

namespace onnx_fp8 {

void AddGradientOutputs(const std::vector<std::pair<Value*, Value*>>& pairs,
                        Value* loss_scale, StepGraph* step) {
  Graph& graph = *step->graph;
  Builder b(graph, "loss_scale.");
  Value* inverse = loss_scale ? b.Op("Reciprocal", {loss_scale}) : nullptr;
  for (auto [value, gradient] : pairs) {
    if (inverse) gradient = b.Mul(gradient, b.Cast(inverse, gradient->dtype));
    // Two values may share one gradient; each gets an output of its own.
    Node* node = graph.AddNode("Identity", {gradient},
                               {graph.FreshName("grad." + value->name)});
    Value* named = node->out(0);
    named->dtype = gradient->dtype;
    named->shape = gradient->shape;
    graph.outputs.push_back(named);
    auto& names = value->is_input ? step->input_gradients : step->gradients;
    names[named->name] = value->name;
  }
}

}  // namespace onnx_fp8
