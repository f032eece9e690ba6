// SPDX-License-Identifier: Apache-2.0
#include "providers/provider.h"

#include "base/check.h"

namespace onnx_fp8 {

std::shared_ptr<void> ExecutionProvider::AllocateOnHost(size_t /*bytes*/) {
  Fail("[provider ", Name(),
       "] expected a device that reads the host's memory");
}

Tensor ExecutionProvider::NewTensor(DType dtype, const Shape& shape) {
  Tensor type = Tensor::OfType(dtype, shape);
  std::shared_ptr<void> memory = Allocate(type.bytes());
  void* data = memory.get();
  return Tensor::View(dtype, shape, std::move(memory), data, device());
}

Tensor ExecutionProvider::Clone(const Tensor& any) {
  Tensor ours = NewTensor(any.dtype(), any.shape());
  Assign(any, ours);
  return ours;
}

Tensor ExecutionProvider::ToOurs(const Tensor& any) {
  return any.device() == device() ? any : Clone(any);
}

Tensor ExecutionProvider::ToHost(const Tensor& any) {
  if (any.on_host()) return any;
  Tensor host = Tensor::Allocate(any.dtype(), any.shape());
  CopyOut(any, host);
  return host;
}

void ExecutionProvider::Assign(const Tensor& any, Tensor& ours) {
  if (any.device() == device()) {
    Copy(any, ours);
  } else {
    CopyIn(any, ours);
  }
}

}  // namespace onnx_fp8
