// SPDX-License-Identifier: Apache-2.0
#include "providers/run/state_store.h"

#include "base/check.h"
#include "base/mapped_file.h"

namespace onnx_fp8 {

const Tensor& StateStore::Get(const std::string& name) const {
  auto it = tensors_.find(name);
  Check(it != tensors_.end(), "[state ", name, "] expected a tensor, got none");
  return it->second;
}

void StateStore::Set(const std::string& name, const Tensor& value) {
  Tensor& ours = tensors_[name];
  if (ours.dtype() == value.dtype() && ours.shape() == value.shape()) {
    provider_->Assign(value, ours);
  } else {
    ours = provider_->Clone(value);
  }
}

void StateStore::Read(const std::string& name, const Tensor& value) {
  const bool ours = provider_->device() == Device::kHost;
  Tensor read = ours ? provider_->NewTensor(value.dtype(), value.shape())
                     : Tensor::Allocate(value.dtype(), value.shape());
  CopyMapped(value.raw(), value.bytes(), read.raw());
  tensors_[name] = provider_->ToOurs(read);
}

Tensor StateStore::Host(const std::string& name) const {
  return provider_->ToHost(Get(name));
}

TensorSource StateStore::Source(const std::string& name) const {
  const Tensor& tensor = Get(name);
  return TensorSource(tensor.dtype(), tensor.shape(),
                      [this, name] { return Host(name); });
}

size_t StateStore::bytes() const {
  size_t sum = 0;
  for (const auto& [name, tensor] : tensors_) sum += tensor.bytes();
  return sum;
}

}  // namespace onnx_fp8
