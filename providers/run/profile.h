// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>
#include <unordered_map>
#include <vector>

#include "graph/graph.h"
#include "onnx_fp8/profile_report.h"

namespace onnx_fp8 {

// Where a node ran: in its turn, or beside other nodes as a collective or as an
// update of state in the host's memory.
enum class Lane { kHost = 1, kBeside = 2, kUpdates = 3 };

// Records when each node ran (Executor::set_profiler). All Runs of all
// executors with this profiler go into one list. REQUIRES: the graphs outlive
// it.
class Profiler {
 public:
  using Clock = std::chrono::steady_clock;

  // Without `trace` it keeps only sums by node, which do not grow with the
  // steps.
  explicit Profiler(bool trace = true) : trace_(trace) {}

  void Add(const Node& node, Clock::time_point begin, Clock::time_point end,
           Lane lane = Lane::kHost);
  // A call of collectives, whose nodes are added too.
  void AddTransfer(Clock::duration time, Clock::duration waited);

  // Nodes between BeginStep and EndStep belong to a training step; others (of
  // an evaluation) are only in the trace.
  void BeginStep(Clock::time_point now = Clock::now());
  void EndStep(Clock::time_point now = Clock::now());

  size_t size() const { return events_.size(); }

  // An event for each node (chrome_trace.h); times are those since the first
  // one, tid is the Lane.
  std::string ChromeTrace() const;

  // Errors: the file can't be written.
  void WriteChromeTrace(const std::string& path) const;

  ProfileReport Report() const;

 private:
  struct Event {
    const Node* node;
    double begin, duration;  // microseconds
    Lane lane;
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
  TransferTimes transfers_;          // the same
  std::vector<Total> totals_;        // in order of their first run
  std::unordered_map<const Node*, size_t> total_of_;
};

}  // namespace onnx_fp8
