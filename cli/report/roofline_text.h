// SPDX-License-Identifier: Apache-2.0
//
// The least time of a step on a GPU (providers/report/roofline.h), for people
// and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <ostream>

#include "onnx_fp8/profile_report.h"
#include "providers/report/roofline.h"

namespace onnx_fp8 {

nlohmann::ordered_json RooflineJson(const ProfileReport& bound,
                                    const GpuPeaks& gpu);
// Lists the longest nodes, or all.
void PrintRoofline(const ProfileReport& bound, const GpuPeaks& gpu,
                   bool all_nodes, std::ostream& out);

}  // namespace onnx_fp8
