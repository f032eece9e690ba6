// SPDX-License-Identifier: Apache-2.0
#include "providers/run/device_timeline.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "base/check.h"
#include "base/file.h"
#include "graph/node_cost.h"
#include "providers/node_profile.h"
#include "providers/report/roofline.h"
#include "providers/run/chrome_trace.h"

namespace onnx_fp8 {
namespace {

constexpr WorkKind kWorkKinds[] = {WorkKind::kKernel, WorkKind::kCopy,
                                   WorkKind::kClear};
constexpr const char* kWorkNames[] = {"kernels", "copies", "clears"};

double Milliseconds(int64_t nanoseconds) {
  return static_cast<double>(nanoseconds) / 1e6;
}

constexpr Lane kAllLanes[] = {Lane::kHost, Lane::kBeside, Lane::kUpdates};

// Whether the activity belongs to this lane, which is not the host's, wherever
// the lane has work.
bool IsOfLane(const Activity& activity, Lane lane) {
  const auto has = [&](const char* part) {
    return activity.name.find(part) != std::string::npos;
  };
  return lane == Lane::kBeside
             ? has("nccl")
             : has("UpdateKernel") || has("UpdateCodedKernel");
}

// The owner of each piece of work of this kind in this lane, in the order of
// the recording.
std::vector<const RecordedWork*> OwnersOf(
    const std::vector<RecordedWork>& works, Lane lane, WorkKind kind) {
  std::vector<const RecordedWork*> owners;
  for (const RecordedWork& work : works) {
    if (work.lane != lane) continue;
    owners.insert(owners.end(), static_cast<size_t>(work.counts[kind]), &work);
  }
  return owners;
}

// For each interval, the time in which at least one other interval of the list
// goes on, too.
std::vector<int64_t> TimesBeside(
    const std::vector<std::pair<int64_t, int64_t>>& intervals) {
  // Begins and ends in order of time; at one time ends come first.
  std::vector<std::tuple<int64_t, bool, size_t>> points;
  for (size_t i = 0; i < intervals.size(); ++i) {
    if (intervals[i].first == intervals[i].second) continue;
    points.emplace_back(intervals[i].first, true, i);
    points.emplace_back(intervals[i].second, false, i);
  }
  std::ranges::sort(points);
  std::vector<int64_t> beside(intervals.size());
  std::set<size_t> going_on;
  int64_t last = 0;
  for (const auto& [time, begins, i] : points) {
    if (going_on.size() > 1) {
      for (size_t other : going_on) beside[other] += time - last;
    }
    last = time;
    if (begins) {
      going_on.insert(i);
    } else {
      going_on.erase(i);
    }
  }
  return beside;
}

// The role of work without a node.
const char* RoleOf(const Activity& activity, const RecordedWork* work) {
  if (work) return "other";
  if (activity.recorded) return "not matched";
  return activity.kind == WorkKind::kKernel ? "not recorded"
                                            : "inputs and results";
}

// The rows of a report: one for the nodes of each RecordedWork, one for each
// name of other work.
class Rows {
 public:
  TimelineNode& Of(const Activity& activity, const RecordedWork* work) {
    const bool has_node = work && !work->nodes.empty();
    const std::string role = has_node ? "" : RoleOf(activity, work);
    auto [it, added] = row_of_.emplace(
        std::tuple(work, role, has_node ? "" : activity.name), list_.size());
    if (!added) return list_[it->second];
    TimelineNode& row = list_.emplace_back();
    if (has_node) {
      row.node = DescribeNode(*work->nodes[0]);
    } else {
      row.node.node = activity.name;
      row.node.role = role;
    }
    row.node.calls = row.node.flops = row.node.bytes = 0;
    return row;
  }

  // The row of these nodes; null: no activity belongs to them.
  TimelineNode* OfNodes(const RecordedWork& work) {
    auto it = row_of_.find({&work, "", ""});
    return it == row_of_.end() ? nullptr : &list_[it->second];
  }

  // Returns the rows, the longest time first.
  std::vector<TimelineNode> Take() {
    std::ranges::stable_sort(
        list_, std::greater<>(),
        [](const TimelineNode& row) { return row.node.milliseconds; });
    return std::move(list_);
  }

 private:
  std::map<std::tuple<const RecordedWork*, std::string, std::string>, size_t>
      row_of_;
  std::vector<TimelineNode> list_;
};

}  // namespace

DeviceTimeline::DeviceTimeline(ExecutionProvider& provider,
                               const std::string& file, int64_t steps)
    : provider_(provider), file_(file), steps_(steps) {
  if (!file_.empty()) WriteFileAtomically(file_, ChromeTrace() + "\n");
}

DeviceTimeline::~DeviceTimeline() {
  if (finished_) return;
  try {
    provider_.Synchronize();
    Finish();
  } catch (const Error&) {
    // The session has ended: nobody asks for the errors of its last steps.
  }
}

size_t DeviceTimeline::AddRecording(std::vector<RecordedWork> works) {
  recordings_.push_back(std::move(works));
  return recordings_.size() - 1;
}

void DeviceTimeline::AddReplay(size_t recording) {
  if (finished_ || begun_ <= kStepsBefore) return;
  replays_.push_back(recording);
  if (!in_step_) ++between_;
}

void DeviceTimeline::BeginStep() {
  if (finished_) return;
  if (first_is_next()) provider_.activities()->Begin();
  in_step_ = true;
  if (++begun_ > kStepsBefore) {
    host_.emplace_back(provider_.activities()->Now(), 0);
  }
}

void DeviceTimeline::EndStep() {
  if (finished_) return;
  in_step_ = false;
  if (host_.empty()) return;
  host_.back().second = provider_.activities()->Now();
}

void DeviceTimeline::Finish() {
  if (finished_) return;
  finished_ = true;
  if (host_.empty()) {
    notes_.push_back(Concat("the run had ", begun_,
                            " steps: a timeline needs at least ",
                            kStepsBefore + 1));
    return;
  }
  std::erase_if(host_, [](const auto& step) { return step.second == 0; });
  FindOwners(provider_.activities()->End());
  if (between_ > 0) {
    notes_.push_back(Concat("between the steps there were ", between_,
                            " launches of evaluations, which count as well"));
  }
  if (int64_t lost = provider_.activities()->Lost(); lost > 0) {
    notes_.push_back(Concat("CUPTI lost ", lost, " records"));
  }
  try {
    if (!file_.empty()) WriteFileAtomically(file_, ChromeTrace() + "\n");
  } catch (const Error& error) {
    notes_.push_back(error.what());  // the run goes on
  }
}

// Fills owned_. A launch stays without owners if it has more or fewer records
// than its recording, or if launches can't be counted.
void DeviceTimeline::FindOwners(std::vector<Activity> activities) {
  std::ranges::stable_sort(activities, {}, &Activity::begin);
  std::map<uint32_t, std::vector<Owned>> launches;
  for (Activity& activity : activities) {
    auto& list = activity.recorded ? launches[activity.launch] : launches[0];
    list.push_back({std::move(activity), nullptr});
  }
  const size_t recorded =
      launches.size() - static_cast<size_t>(launches.contains(0));
  if (recorded != replays_.size()) {
    notes_.push_back(Concat("expected records of ", replays_.size(),
                            " launches of recorded steps, got records of ",
                            recorded, ": they are not matched to nodes"));
  }
  size_t at = 0;
  for (auto& [number, launch] : launches) {
    if (number != 0 && recorded == replays_.size()) {
      FindOwnersIn(launch, recordings_[replays_[at++]]);
    }
    std::ranges::move(launch, std::back_inserter(owned_));
  }
  std::ranges::stable_sort(
      owned_, {}, [](const Owned& owned) { return owned.activity.begin; });
}

// Collectives and updates beside other steps have streams of their own.
void DeviceTimeline::FindOwnersIn(std::vector<Owned>& launch,
                                  const std::vector<RecordedWork>& works) {
  std::map<uint32_t, Lane> lane_of;  // by stream; none: in its turn
  std::set<Lane> lanes;
  for (const RecordedWork& work : works) lanes.insert(work.lane);
  lanes.erase(Lane::kHost);
  for (Lane lane : lanes) {
    for (const Owned& owned : launch) {
      if (IsOfLane(owned.activity, lane)) lane_of[owned.activity.stream] = lane;
    }
  }
  for (Lane lane : kAllLanes) {
    for (WorkKind kind : kWorkKinds) {
      std::vector<Owned*> found;
      for (Owned& owned : launch) {
        const auto side = lane_of.find(owned.activity.stream);
        const Lane own = side == lane_of.end() ? Lane::kHost : side->second;
        if (owned.activity.kind == kind && own == lane) found.push_back(&owned);
      }
      std::vector<const RecordedWork*> owners = OwnersOf(works, lane, kind);
      if (found.size() != owners.size()) {
        notes_.push_back(Concat(
            "a launch has records of ", found.size(), " ",
            kWorkNames[static_cast<size_t>(kind)], " where the recorded step ",
            lane == Lane::kHost ? "has " : "has on a stream of its own ",
            owners.size(), ": they are not matched to nodes"));
        continue;
      }
      for (size_t i = 0; i < found.size(); ++i) found[i]->work = owners[i];
    }
  }
}

TimelineReport DeviceTimeline::Report() const {
  TimelineReport report;
  report.notes = notes_;
  report.steps = static_cast<int64_t>(host_.size());
  const GpuPeaks* gpu = FindGpu(provider_.Describe().isa);
  if (gpu) report.gpu = gpu->name;
  if (report.steps == 0 || owned_.empty()) return report;
  std::vector<std::pair<int64_t, int64_t>> intervals;
  for (const Owned& o : owned_) {
    intervals.emplace_back(o.activity.begin, o.activity.end);
  }
  const std::vector<int64_t> beside = TimesBeside(intervals);

  const double per_step = 1 / static_cast<double>(report.steps);
  Rows rows;
  int64_t end = owned_.front().activity.begin;
  uint32_t launch = owned_.front().activity.launch;
  for (size_t i = 0; i < owned_.size(); ++i) {
    const auto& [activity, work] = owned_[i];
    TimelineNode& row = rows.Of(activity, work);
    row.node.calls += per_step;
    row.node.milliseconds +=
        Milliseconds(activity.end - activity.begin) * per_step;
    row.beside += Milliseconds(beside[i]) * per_step;
    const bool inside = activity.recorded && activity.launch == launch;
    (inside ? row.gap : report.idle) +=
        Milliseconds(std::max<int64_t>(0, activity.begin - end)) * per_step;
    end = std::max(end, activity.end);
    launch = activity.launch;
  }
  report.milliseconds =
      Milliseconds(end - owned_.front().activity.begin) * per_step;
  for (const auto& [begin, until] : host_) {
    report.host += Milliseconds(until - begin) * per_step;
  }
  // A node runs once in each replay of its recording.
  for (size_t recording : replays_) {
    for (const RecordedWork& work : recordings_[recording]) {
      TimelineNode* row = rows.OfNodes(work);
      if (!row) continue;
      for (const Node* node : work.nodes) {
        const NodeCost cost = CostOf(*node);
        row->node.flops += cost.flops * per_step;
        row->node.bytes += cost.bytes * per_step;
        if (!gpu) continue;
        row->least += LeastMilliseconds(*node, *gpu) * per_step;
      }
    }
  }
  report.nodes = rows.Take();
  return report;
}

std::string DeviceTimeline::ChromeTrace() const {
  auto trace = nlohmann::json::array();
  int64_t first = host_.empty() ? 0 : host_.front().first;
  for (const Owned& o : owned_) first = std::min(first, o.activity.begin);
  auto since = [&](int64_t time) {
    return static_cast<double>(time - first) / 1e3;
  };
  for (size_t i = 0; i < host_.size(); ++i) {
    const double begin = since(host_[i].first);
    trace.push_back(
        TraceEvent(Concat("the host starts step ", i + kStepsBefore + 1),
                   "host", 0, begin, since(host_[i].second) - begin));
  }
  for (const auto& [activity, work] : owned_) {
    const double begin = since(activity.begin);
    const double duration = since(activity.end) - begin;
    const int thread = static_cast<int>(activity.stream) + 1;
    nlohmann::json event;
    if (work && !work->nodes.empty()) {
      event = NodeEvent(*work->nodes[0], thread, begin, duration);
      if (work->nodes.size() > 1) {
        event["args"]["nodes"] = work->nodes.size();
      }
    } else {
      event = TraceEvent(activity.name, "device", thread, begin, duration);
    }
    event["args"]["kernel"] = activity.name;
    trace.push_back(std::move(event));
  }
  return ChromeText(trace);
}

}  // namespace onnx_fp8
