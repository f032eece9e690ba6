// SPDX-License-Identifier: Apache-2.0
#include "providers/cpu/dispatch.h"

#include <vector>

#include "providers/cpu/arguments.h"

namespace onnx_fp8 {
namespace {

// The dtype of the first 16-bit float operand; kUndefined if there is none.
DType FirstHalf(const KernelContext& c) {
  for (size_t i = 0; i < c.num_inputs(); ++i) {
    if (c.HasIn(i) && IsHalf(c.In(i).dtype())) return c.In(i).dtype();
  }
  return DType::kUndefined;
}

}  // namespace

void RunWidened(KernelContext& c, Kernel kernel) {
  DType narrow = FirstHalf(c);
  if (narrow == DType::kUndefined) return kernel(c);
  std::vector<Tensor> inputs(c.num_inputs());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!c.HasIn(i)) continue;
    const Tensor& x = c.In(i);
    inputs[i] = IsHalf(x.dtype()) ? ConvertTo(x, DType::kFloat) : x;
  }
  std::vector<Tensor> outputs(c.num_outputs());
  KernelContext wide = c.With(inputs, outputs);
  kernel(wide);
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!c.HasOut(i) || !outputs[i].defined()) continue;
    DType dtype = c.node().out(i)->dtype;
    if (dtype == DType::kUndefined) {
      bool is_float = outputs[i].dtype() == DType::kFloat;
      dtype = is_float ? narrow : outputs[i].dtype();
    }
    SetResult(c, i, ConvertTo(outputs[i], dtype));
  }
}

}  // namespace onnx_fp8
