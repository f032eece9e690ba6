// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/parallel.h"
#include "onnx_fp8/tensor.h"
#include "providers/ort/graph_runner.h"
#include "providers/ort/ort_api.h"

namespace onnx_fp8 {

// Our dtype for the runtime's; kUndefined: we have none.
DType FromRuntime(ONNXTensorElementDataType type);
ONNXTensorElementDataType ToRuntime(DType dtype);

// The same as FromRuntime. Errors: `who` has a type that we do not have.
DType DTypeOf(ONNXTensorElementDataType type, const std::string& who);

// A view of the value's memory. REQUIRES: the value outlives it. Errors: no
// tensor of numbers; `who` names the value.
Tensor ViewOf(const OrtValue& value, const std::string& who);

// The operands of a call; undefined: left out. Errors: as ViewOf's.
std::vector<Tensor> OperandsOf(const OrtKernelContext* context);

// The memory of result i of a call; undefined: nobody reads it.
Tensor ResultOf(OrtKernelContext* context, size_t i, const Shape& shape);

// The threads on which the session runs our loops.
struct Threads {
  int count = 0;     // 0: AvailableCpus()
  bool own = false;  // our own pool; else the session's
};

// Runs the graph once: its inputs are the inputs `from` of the context, its
// outputs are the context's.
void RunInContext(GraphRunner& runner, OrtKernelContext* context,
                  const std::vector<size_t>& from, const Threads& threads);

}  // namespace onnx_fp8
