// SPDX-License-Identifier: Apache-2.0
#include "providers/run/state_store.h"

#include "base/check.h"
#include "base/mapped_file.h"

namespace onnx_fp8 {
namespace {

bool HaveOneType(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape();
}

}  // namespace

const Tensor& StateStore::Get(const std::string& name) const {
  auto it = tensors_.find(name);
  Check(it != tensors_.end(), "[state ", name, "] expected a tensor, got none");
  return it->second;
}

void StateStore::Set(const std::string& name, const Tensor& value) {
  Tensor& ours = tensors_[name];
  if (HaveOneType(ours, value)) {
    provider_->Assign(value, ours);
  } else {
    ours = provider_->Clone(value);
  }
}

void StateStore::Read(const std::string& name, const Tensor& value) {
  const bool here = provider_->device() == Device::kHost;
  auto known = tensors_.find(name);
  const bool in_place =
      here && known != tensors_.end() && HaveOneType(known->second, value);
  Tensor read = in_place ? known->second
                : here   ? provider_->NewTensor(value.dtype(), value.shape())
                         : Tensor::Allocate(value.dtype(), value.shape());
  CopyMapped(value.raw(), value.bytes(), read.raw());
  if (here) {
    tensors_[name] = read;
  } else {
    Set(name, read);
  }
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
