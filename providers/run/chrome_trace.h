// SPDX-License-Identifier: Apache-2.0
//
// Chrome's trace format (chrome://tracing, ui.perfetto.dev): an array of
// complete events.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "graph/graph.h"

namespace onnx_fp8 {

// An event without args. `thread` is the row in which it is drawn. Times are in
// microseconds.
nlohmann::json TraceEvent(const std::string& name, const std::string& category,
                          int thread, double begin, double duration);

// The event of a node. args: op, shape of the first
// output, module path (NodePath), role and fqn if the node has them, and the
// node's operations and bytes per second (node_cost.h), in thousand millions.
nlohmann::json NodeEvent(const Node& node, int thread, double begin,
                         double duration);

// The file's text. Names come from files and need not be UTF-8: other bytes are
// replaced.
std::string ChromeText(const nlohmann::json& events);

}  // namespace onnx_fp8
