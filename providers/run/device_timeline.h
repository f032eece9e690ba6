// SPDX-License-Identifier: Apache-2.0
//
// The timeline of a device: some steps as they run without a profiler, with
// each kernel's node. Work is matched to nodes by its order in the recorded
// step.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "onnx_fp8/timeline_report.h"
#include "providers/activity.h"
#include "providers/provider.h"
#include "providers/run/profile.h"

namespace onnx_fp8 {

// What some nodes, which run together, have added to a Recording.
struct RecordedWork {
  std::vector<const Node*> nodes;  // none: copies and clears of the executor
  Lane lane = Lane::kHost;
  WorkCounts counts;
};

class DeviceTimeline {
 public:
  // Number of steps before the timeline. The first one runs kernel by kernel,
  // the second one is recorded.
  static constexpr int64_t kStepsBefore = 2;

  // Observes `steps` steps of a run, which `file` gets as a Chrome trace; "":
  // no file. Compares them with the peaks of the provider's GPU, if known.
  // REQUIRES: the provider has activities(). It and the graphs of all nodes
  // outlive the timeline. Errors: the file can't be written.
  DeviceTimeline(ExecutionProvider& provider, const std::string& file,
                 int64_t steps);
  // Waits for the device. Finishes the timeline.
  ~DeviceTimeline();

  // Adds a Recording. Returns its number.
  size_t AddRecording(std::vector<RecordedWork> works);
  void AddReplay(size_t recording);

  // The host calls them before and after it starts a step. REQUIRES: all
  // started work is done before the first step of the timeline begins.
  void BeginStep();
  void EndStep();
  bool first_is_next() const { return !finished_ && begun_ == kStepsBefore; }
  // Whether the last step has ended and Finish was not called yet.
  bool is_complete() const {
    return !finished_ && !in_step_ && begun_ == kStepsBefore + steps_;
  }
  // Ends the timeline, maybe too early, and writes the file. A note says why it
  // can't be written. REQUIRES: all started work is done.
  void Finish();

  // REQUIRES: Finish was called.
  TimelineReport Report() const;
  std::string ChromeTrace() const;

 private:
  // An activity and its owner.
  struct Owned {
    Activity activity;
    const RecordedWork* work;  // null: not of a recorded step, or not matched
  };

  void FindOwners(std::vector<Activity> activities);
  void FindOwnersIn(std::vector<Owned>& launch,
                    const std::vector<RecordedWork>& works);

  ExecutionProvider& provider_;
  std::string file_;
  int64_t steps_, begun_ = 0;
  int64_t between_ = 0;  // replays between the timeline's steps
  bool in_step_ = false, finished_ = false;
  std::vector<std::vector<RecordedWork>> recordings_;
  std::vector<size_t> replays_;  // since the timeline's first step began
  std::vector<std::pair<int64_t, int64_t>> host_;  // times of each step
  std::vector<Owned> owned_;                       // by their begin
  std::vector<std::string> notes_;
};

}  // namespace onnx_fp8
