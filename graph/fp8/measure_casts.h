// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "graph/graph.h"
#include "onnx_fp8/cast_statistics.h"

namespace onnx_fp8 {

struct CastMeasures {
  Value* numbers;  // CastStatistics::kNumbers doubles for each cast
  std::vector<MeasuredCast> casts;
};

// "fc.weight dgrad weight (2nd copy)", for people.
std::string Label(const MeasuredCast& cast);

// The quantizers that Fp8Rewrite has made for the layers whose names one of the
// globs matches; for all layers, if there is none. `keeps_codes`: frozen
// weights live as codes from step to step, so that no step casts them. Errors:
// no layer is in FP8; a glob that matches none.
std::vector<Node*> MeasuredQuantizers(Graph& graph,
                                      const std::vector<std::string>& layers,
                                      bool keeps_codes = false);

// Adds a CastStatistics behind each of these quantizers. All other nodes keep
// their order and their results.
CastMeasures MeasureCasts(Graph& graph, const std::vector<std::string>& layers,
                          bool keeps_codes = false);

}  // namespace onnx_fp8
