// SPDX-License-Identifier: Apache-2.0
//
// Statistics of casts to FP8 (`stats`), for people and for programs.
#pragma once

#include <nlohmann/json.hpp>
#include <ostream>
#include <vector>

#include "onnx_fp8/cast_statistics.h"

namespace onnx_fp8 {

// One line per cast, the noisiest first; a cast without noise comes last.
// Without casts it says so.
void PrintCasts(std::ostream& out, const std::vector<MeasuredCast>& casts);

// An array of the objects of statistics.jsonl (docs/formats.md), without steps.
nlohmann::ordered_json CastsJson(const std::vector<MeasuredCast>& casts);

}  // namespace onnx_fp8
