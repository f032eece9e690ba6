// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>
#include <unordered_map>
#include <vector>

#include "graph/graph.h"
#include "onnx_fp8/profile_report.h"

namespace onnx_fp8 {

// Collects when each node ran (Executor::set_profiler). All Runs of all
// executors that it is attached to go into one list. REQUIRES: the graphs
// outlive it.
class Profiler {
 public:
  using Clock = std::chrono::steady_clock;

  // Without `trace` it keeps sums by node only, which do not grow with the
  // steps.
  explicit Profiler(bool trace = true) : trace_(trace) {}

  void Add(const Node& node, Clock::time_point begin, Clock::time_point end);

  // The nodes between the two are those of a training step; others (of an
  // evaluation) are in the trace only.
  void BeginStep(Clock::time_point now = Clock::now());
  void EndStep(Clock::time_point now = Clock::now());

  size_t size() const { return events_.size(); }

  // Chrome's trace format (chrome://tracing, ui.perfetto.dev): an array of
  // complete events, times in microseconds since the first one. args: op,
  // shape of the first output, module path (NodePath), the role and fqn of
  // nodes that have them, and the node's operations and bytes (node_cost.h),
  // in thousand millions per second.
  std::string ChromeTrace() const;

  // Errors: the file can't be written.
  void WriteChromeTrace(const std::string& path) const;

  ProfileReport Report() const;

 private:
  struct Event {
    const Node* node;
    double begin, duration;  // microseconds
  };
  struct Total {
    const Node* node;
    int64_t calls;
    double time;  // microseconds
  };

  bool trace_;
  Clock::time_point start_;
  std::vector<Event> events_;

  bool in_step_ = false;
  Clock::time_point step_start_;
  int64_t begun_ = 0, counted_ = 0;  // steps
  double step_time_ = 0;             // microseconds, of the counted ones
  std::vector<Total> totals_;        // in order of their first run
  std::unordered_map<const Node*, size_t> total_of_;
};

}  // namespace onnx_fp8
