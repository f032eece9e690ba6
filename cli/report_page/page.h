// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "cli/report_page/run_record.h"

namespace onnx_fp8 {

inline constexpr size_t kMostReportedRuns = 8;

// All pages begin with it, and no other file does.
inline constexpr std::string_view kPageBegin =
    "<!doctype html>\n<!-- Made by onnx-fp8 report. -->\n";

// The runs as one HTML page that loads nothing. REQUIRES: 1 to
// kMostReportedRuns runs.
std::string ReportPage(std::span<const RunRecord> runs);

// The numbers that the page's script draws, as JSON.
std::string PageData(std::span<const RunRecord> runs);

// JSON that may stand between <script> and </script>: without the letters <,
// > and &, which are in its texts alone.
std::string InScript(std::string_view json);

}  // namespace onnx_fp8
