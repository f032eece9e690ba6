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

// The quantizers that Fp8Rewrite has made, and its products, for the layers
// whose names match one of the globs. Without globs all layers count.
// `keeps_codes`: frozen weights live as codes from step to step, so no step
// casts them; their quantizers and their products are left out. Errors: no
// layer is in FP8; a glob matches no layer in FP8; nothing is left.
std::vector<Node*> MeasuredNodes(Graph& graph,
                                 const std::vector<std::string>& layers,
                                 bool keeps_codes = false);

// The tensor that a quantizer's codes stand for. A copy may be quantized from
// an earlier copy (Transposition::kRequantize).
Value* BeforeCasts(const Node& quantizer);

// Adds a CastStatistics behind each of these quantizers, and a
// ProductStatistics behind each of these products. The latter compares 128 rows
// of the FP8 product, or all rows if it has fewer, with the same rows of a
// float32 product of the operands before their casts. The graph's other nodes
// keep their order and their results.
CastMeasures MeasureCasts(Graph& graph, const std::vector<std::string>& layers,
                          bool keeps_codes = false);

}  // namespace onnx_fp8
