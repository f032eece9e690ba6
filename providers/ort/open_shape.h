// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "onnx_fp8/shape.h"
#include "providers/ort/ort_api.h"

namespace onnx_fp8 {

// Sets the shape. The runtime takes a size of -1 at its word, so each axis of
// size -1 gets a name that no other axis has. onnxruntime 1.19 refuses sizes
// without names.
void SetShape(OrtTensorTypeAndShapeInfo* info, const Shape& shape);

}  // namespace onnx_fp8
