// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace onnx_fp8 {

// Collects when each node ran (Executor::set_profiler). All Runs of all
// executors that it is attached to go into one list. REQUIRES: the graphs
// outlive it.
class Profiler {
 public:
  using Clock = std::chrono::steady_clock;

  void Add(const Node& node, Clock::time_point begin, Clock::time_point end);
  void Clear() { events_.clear(); }
  size_t size() const { return events_.size(); }

  // Chrome's trace format (chrome://tracing, ui.perfetto.dev): an array of
  // complete events, times in microseconds since the first one. args: op,
  // shape of the first output, module path (NodePath), the role and fqn of
  // nodes that have them.
  std::string ChromeTrace() const;

  // Errors: the file can't be written.
  void WriteChromeTrace(const std::string& path) const;

  // A table, one line per op, longest total time first: op, calls,
  // milliseconds, share in percent, mean microseconds.
  std::string Summary() const;

 private:
  struct Event {
    const Node* node;
    double begin, duration;  // microseconds
  };

  Clock::time_point start_;
  std::vector<Event> events_;
};

}  // namespace onnx_fp8
