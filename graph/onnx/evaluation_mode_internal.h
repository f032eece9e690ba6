// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <onnx/onnx_pb.h>

namespace onnx_fp8 {

// Puts a file into evaluation mode, functions and bodies included:
// BatchNormalization normalizes by its running statistics, Dropout drops
// nothing. Nodes that read the next statistics read the present ones.
void SetEvaluationMode(ONNX_NAMESPACE::ModelProto* model);

}  // namespace onnx_fp8
