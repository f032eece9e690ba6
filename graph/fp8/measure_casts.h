// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "graph/graph.h"
#include "onnx_fp8/cast_statistics.h"

namespace onnx_fp8 {

// A cast to FP8 that a graph measures.
struct MeasuredCast {
  std::string fqn;      // of the layer's weight
  std::string gemm;     // the first one that reads the codes: "forward", …
  std::string operand;  // "input", "weight" or "grad_output"
  int64_t use = 1;      // counts the copies of one tensor, in order
  DType format = DType::kE4M3;

  std::string Label() const;  // for people: "fc.weight dgrad weight (2nd copy)"
};

struct CastMeasures {
  // CastStatistics::kNumbers doubles for each cast; null: none is measured.
  Value* numbers = nullptr;
  std::vector<MeasuredCast> casts;
};

// Adds a CastStatistics behind each quantizer that Fp8Rewrite has made for a
// layer whose name one of the globs matches; all, if there is none. The other
// nodes keep their order and their results. Errors: a glob that matches no
// quantized layer.
CastMeasures MeasureCasts(Graph& graph, const std::vector<std::string>& layers);

}  // namespace onnx_fp8
