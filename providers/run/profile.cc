// SPDX-License-Identifier: Apache-2.0
#include "providers/run/profile.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "providers/node_profile.h"
#include "providers/run/chrome_trace.h"

namespace onnx_fp8 {
namespace {

using Microseconds = std::chrono::duration<double, std::micro>;

}  // namespace

void Profiler::Add(const Node& node, Clock::time_point begin,
                   Clock::time_point end, Lane lane) {
  double duration = Microseconds(end - begin).count();
  if (trace_) {
    if (events_.empty()) start_ = begin;
    events_.push_back(
        {&node, Microseconds(begin - start_).count(), duration, lane});
  }
  if (!in_step_) return;
  auto [it, added] = total_of_.emplace(&node, totals_.size());
  if (added) totals_.push_back({&node, 0, 0});
  ++totals_[it->second].calls;
  totals_[it->second].time += duration;
}

void Profiler::AddTransfer(Clock::duration time, Clock::duration waited) {
  if (!in_step_) return;
  transfers_.all += Microseconds(time).count();
  transfers_.exposed += Microseconds(waited).count();
}

void Profiler::BeginStep(Clock::time_point now) {
  if (++begun_ == 2) {
    counted_ = 0;
    step_time_ = 0;
    transfers_ = {};
    totals_.clear();
    total_of_.clear();
  }
  in_step_ = true;
  step_start_ = now;
}

void Profiler::EndStep(Clock::time_point now) {
  in_step_ = false;
  ++counted_;
  step_time_ += Microseconds(now - step_start_).count();
}

std::string Profiler::ChromeTrace() const {
  auto trace = nlohmann::json::array();
  // A node that ran beside others may have begun before the first one.
  double first = 0;
  for (const Event& event : events_) first = std::min(first, event.begin);
  for (const Event& event : events_) {
    trace.push_back(NodeEvent(*event.node, static_cast<int>(event.lane),
                              event.begin - first, event.duration));
  }
  return ChromeText(trace);
}

void Profiler::WriteChromeTrace(const std::string& path) const {
  WriteFileAtomically(path, ChromeTrace() + "\n");
}

ProfileReport Profiler::Report() const {
  ProfileReport report{.steps = counted_, .cold = begun_ == 1};
  if (counted_ == 0) return report;
  auto steps = static_cast<double>(counted_);
  report.milliseconds = step_time_ / 1e3 / steps;
  report.transfers = {transfers_.all / 1e3 / steps,
                      transfers_.exposed / 1e3 / steps};
  for (const Total& total : totals_) {
    NodeProfile node = DescribeNode(*total.node);
    node.calls = static_cast<double>(total.calls) / steps;
    node.milliseconds = total.time / 1e3 / steps;
    node.flops *= node.calls;
    node.bytes *= node.calls;
    report.nodes.push_back(node);
  }
  std::ranges::stable_sort(report.nodes, std::greater<>(),
                           &NodeProfile::milliseconds);
  return report;
}

}  // namespace onnx_fp8
