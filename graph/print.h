// SPDX-License-Identifier: Apache-2.0
//
// A graph as text, for golden tests, dumps and `inspect`. One line each for
// inputs, initializers, nodes in order, outputs and state bindings:
//
//   graph "mlp" opset 24
//   input x: float[batch,3]
//   param w: float[3,4]
//   const axes: int64[1] = {0}
//   y: float[batch,4], _ = Op<axis=1, alpha=0.5>(x, , w)  # blocks.0/linear
//   output y
//   update w = w_next
//
// `_` is an omitted output, an empty place an omitted input. Initializers
// have the name of their role (const, param, frozen, moment, …); `input` before
// one of them says that it is a graph input as well. Only constants of at most
// 8 elements show their values. Names beyond letters, digits and "_./:-" are
// quoted. The same graph always gives the same text.
#pragma once

#include <string>

#include "graph/graph.h"

namespace onnx_fp8 {

std::string Print(const Graph& graph);

// One node without its comment; blocks of subgraphs span several lines.
std::string Print(const Node& node);

// "float[2,3]"; "float" if the rank is unknown, "?" for unknown sizes and
// dtypes; names of axes if an input has them.
std::string TypeText(const Value& value);

// The place in the exported program that the node comes from: innermost module
// and call, "blocks.0.ln_1/layer_norm", from torch's scopes; else the node's
// name (a path in files of the older exporter). May be empty.
std::string NodePath(const Node& node);

}  // namespace onnx_fp8
