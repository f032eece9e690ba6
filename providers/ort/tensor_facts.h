// SPDX-License-Identifier: Apache-2.0
//
// Types and shapes of tensors, as the runtime gives and takes them.
#pragma once

#include <optional>

#include "onnx_fp8/shape.h"
#include "providers/ort/ort_api.h"

namespace onnx_fp8 {

struct TensorFacts {
  ONNXTensorElementDataType type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
  std::optional<Shape> shape;  // an axis of size -1 is not known
};

// `info` may be null: the value is no tensor.
TensorFacts FactsOf(const OrtTensorTypeAndShapeInfo* info);

// Facts about the operands and results of a custom op's node, while the session
// infers shapes. The runtime takes a size of -1 at its word, so SetResult gives
// each such axis a name that no other axis has. onnxruntime 1.19 refuses sizes
// without names.
TensorFacts OperandFacts(OrtShapeInferContext* context, size_t i);
void SetResult(OrtShapeInferContext* context, size_t i, const TensorFacts&);

// The same when the node's kernel is made.
TensorFacts OperandFacts(const OrtKernelInfo* info, size_t i);
TensorFacts ResultFacts(const OrtKernelInfo* info, size_t i);

}  // namespace onnx_fp8
