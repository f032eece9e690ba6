// SPDX-License-Identifier: Apache-2.0
//
// The work that a device does, with its times. Providers record it for a
// timeline.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace onnx_fp8 {

enum class WorkKind { kKernel, kCopy, kClear };

// Pieces of work by kind.
struct WorkCounts {
  std::array<int64_t, 3> of = {};

  int64_t& operator[](WorkKind kind) { return of[static_cast<size_t>(kind)]; }
  int64_t operator[](WorkKind kind) const {
    return of[static_cast<size_t>(kind)];
  }
  bool operator==(const WorkCounts&) const = default;
};

// One kernel, copy or clear.
struct Activity {
  WorkKind kind = WorkKind::kKernel;
  std::string name;            // the kernel's; "device to host"
  int64_t begin = 0, end = 0;  // nanoseconds of ActivityTrace::Now
  uint32_t stream = 0;
  // Number of the host's call that started the work: later calls have larger
  // numbers. All work of one replay of a Recording has one number.
  uint32_t launch = 0;
  bool recorded = false;  // a part of a Recording
};

// Records the activities of a device, from the time when its provider was made.
class ActivityTrace {
 public:
  virtual ~ActivityTrace() = default;

  // The time now, in nanoseconds of the clock that Activity::begin is read
  // from.
  virtual int64_t Now() = 0;
  // REQUIRE: all started work is done. Begin forgets all activities so far. End
  // returns the activities since Begin, and ends the recording.
  virtual void Begin() = 0;
  virtual std::vector<Activity> End() = 0;
  // Number of activities since Begin that the recording tool has lost.
  virtual int64_t Lost() const = 0;
};

// Ranges of the host's time, by which tools such as Nsight Systems group the
// work of a device. They nest.
class HostRanges {
 public:
  virtual ~HostRanges() = default;
  virtual void Push(const std::string& name) = 0;
  virtual void Pop() = 0;
};

}  // namespace onnx_fp8
