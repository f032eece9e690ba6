// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "graph/graph.h"
#include "onnx_fp8/batch_norm_mode.h"

namespace onnx_fp8 {

// Sets training_mode of every BatchNormalization, also in subgraphs, as `mode`
// says. Returns a note for people, or "". The note names layers that do not
// train because the file was exported for inference, or says that there is none
// to train. Run it before MarkParameters: running statistics are state there
// only if they move.
std::string SetBatchNormMode(Graph& graph, BatchNormMode mode);

}  // namespace onnx_fp8
