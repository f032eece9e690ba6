// SPDX-License-Identifier: Apache-2.0
#include "providers/run/chrome_trace.h"

#include <algorithm>

#include "base/printable.h"
#include "graph/node_cost.h"
#include "graph/node_notes.h"
#include "graph/print.h"
#include "providers/node_profile.h"

namespace onnx_fp8 {

nlohmann::json TraceEvent(const std::string& name, const std::string& category,
                          int thread, double begin, double duration) {
  return {{"name", name},  {"cat", category}, {"ph", "X"},      {"pid", 1},
          {"tid", thread}, {"ts", begin},     {"dur", duration}};
}

nlohmann::json NodeEvent(const Node& node, int thread, double begin,
                         double duration) {
  nlohmann::json args = {{"op", OpName(node)}};
  if (std::string shape = ShapeOf(node); !shape.empty()) args["shape"] = shape;
  if (std::string path = NodePath(node); !path.empty()) args["path"] = path;
  for (const char* key : {"role", "fqn"}) {
    if (std::string note = NodeNote(node, key); !note.empty()) args[key] = note;
  }
  const NodeCost cost = CostOf(node);
  const double nanoseconds = std::max(1e3 * duration, 1.0);
  args["gflops"] = cost.flops / nanoseconds;
  args["gbytes"] = cost.bytes / nanoseconds;
  nlohmann::json event =
      TraceEvent(node.Where(), OpName(node), thread, begin, duration);
  event["args"] = std::move(args);
  return event;
}

std::string ChromeText(const nlohmann::json& events) {
  const std::string text =
      events.dump(1, ' ', false, nlohmann::json::error_handler_t::replace);
  std::string_view rest;
  return PrintableLines(text, &rest);
}

}  // namespace onnx_fp8
