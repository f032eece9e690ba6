// SPDX-License-Identifier: Apache-2.0
//
// A timeline for people and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <ostream>

#include "onnx_fp8/timeline_report.h"

namespace onnx_fp8 {

// {"steps", "ms", "host_ms", "idle_ms", "gpu", "roles", "nodes", "notes"}.
// Without a known GPU there are no "gpu" and no "least_ms".
nlohmann::ordered_json TimelineJson(const TimelineReport& report);
// A table by role, a table of the nodes that lose most, and the notes.
void PrintTimeline(const TimelineReport& report, std::ostream& out);

}  // namespace onnx_fp8
