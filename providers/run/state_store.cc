// SPDX-License-Identifier: Apache-2.0
#include "providers/run/state_store.h"

#include <memory>
#include <utility>

#include "base/check.h"
#include "base/file_memory.h"
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
  auto known = tensors_.find(name);
  const bool in_place =
      known != tensors_.end() && HaveOneType(known->second, value);
  Tensor ours =
      in_place ? known->second : New(name, value.dtype(), value.shape());
  provider_->Assign(value, ours);
  tensors_[name] = ours;
}

void StateStore::Read(const std::string& name, const Tensor& value) {
  const bool here = provider_->device() == Device::kHost;
  auto known = tensors_.find(name);
  const bool in_place =
      here && known != tensors_.end() && HaveOneType(known->second, value);
  Tensor read = in_place ? known->second
                : here   ? New(name, value.dtype(), value.shape())
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

void StateStore::AddOutside(const Plan& plan) {
  if (places_.folder.empty() && places_.on_host.empty()) return;
  for (size_t i = 0; i < plan.states.size(); ++i) {
    const Value& value = *plan.states[i];
    if (!plan.bound[i] || Has(value.name)) continue;
    if (places_.IsOutside(value.name, value.data.bytes())) {
      Set(value.name, value.data);
    }
  }
}

Tensor StateStore::New(const std::string& name, DType dtype,
                       const Shape& shape) {
  const size_t bytes = Tensor::OfType(dtype, shape).bytes();
  if (!places_.IsOutside(name, bytes)) {
    return provider_->NewTensor(dtype, shape);
  }
  std::shared_ptr<void> memory = places_.folder.empty()
                                     ? provider_->AllocateOnHost(bytes)
                                     : AllocateInFile(places_.folder, bytes);
  void* data = memory.get();
  return Tensor::View(dtype, shape, std::move(memory), data,
                      provider_->device());
}

size_t StateStore::bytes() const {
  size_t sum = 0;
  for (const auto& [name, tensor] : tensors_) sum += tensor.bytes();
  return sum;
}

size_t StateStore::outside_bytes() const {
  size_t sum = 0;
  for (const auto& [name, tensor] : tensors_) {
    if (places_.IsOutside(name, tensor.bytes())) sum += tensor.bytes();
  }
  return sum;
}

}  // namespace onnx_fp8
