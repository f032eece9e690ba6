// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "graph/graph.h"

namespace onnx_fp8 {

// What ONNX's inference may know of a value: the data of a small constant, else
// null. No shape depends on what changes from step to step.
const Tensor* KnownData(const Value* value);

// What the inference functions of ONNX 1.20 take on trust and divide by, index
// with or count up to: ranks of operands that must agree, sizes that are data,
// lengths of lists. REQUIRES: the node in the form of opset kNormalOpset, its
// attributes within CheckNodes' bounds. Errors: by name of the node.
void CheckInference(const Node& node);

// What InferNode takes beyond a few steps, as these functions count with
// auto_pad SAME_UPPER and SAME_LOWER.
int64_t InferenceWork(const Node& node);

}  // namespace onnx_fp8
