// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include "onnx_fp8/tensor.h"
#include "providers/provider.h"

namespace onnx_fp8 {

// State tensors by name, in a provider's memory. The host pulls them one at a
// time: a model's state need not fit into its memory a second time.
class StateStore {
 public:
  // `provider` must outlive it.
  explicit StateStore(ExecutionProvider& provider) : provider_(&provider) {}

  bool Has(const std::string& name) const { return tensors_.contains(name); }
  // In the provider's memory. Errors: no tensor of that name.
  const Tensor& Get(const std::string& name) const;
  // A copy of `value`, which lies on the host or with the provider. A tensor of
  // the same dtype and shape keeps its place: whoever shares it sees the
  // change. Errors: out of memory.
  void Set(const std::string& name, const Tensor& value);
  // On the host; shares the bytes where the provider's memory is the host's.
  // Errors: no tensor of that name.
  Tensor Host(const std::string& name) const;
  void Erase(const std::string& name) { tensors_.erase(name); }

  size_t bytes() const;  // of all tensors

  // For an executor, which adds entries and updates them in place, and for a
  // writer of files, which reads dtypes and shapes here and pulls the rest.
  TensorMap& tensors() { return tensors_; }
  const TensorMap& tensors() const { return tensors_; }

 private:
  ExecutionProvider* provider_;
  TensorMap tensors_;
};

}  // namespace onnx_fp8
