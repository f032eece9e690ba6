// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "graph/graph.h"
#include "onnx_fp8/batch_norm_mode.h"

namespace onnx_fp8 {

// Sets training_mode of every BatchNormalization, those of subgraphs included,
// as `mode` wants it. Returns a note for people, or "": which layers a file
// exported for inference keeps from training, or that there is none to train.
// Run it before MarkParameters, for which running statistics are state only
// where they move.
std::string SetBatchNormMode(Graph& graph, BatchNormMode mode);

}  // namespace onnx_fp8
