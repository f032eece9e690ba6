// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include "onnx_fp8/tensor.h"
#include "onnx_fp8/tensor_source.h"
#include "providers/plan/plan.h"
#include "providers/provider.h"
#include "providers/run/state_places.h"

namespace onnx_fp8 {

// State tensors by name, in a provider's memory, or where `places` says. They
// are copied to the host one at a time, so that a second copy of all state need
// not fit into memory.
class StateStore {
 public:
  // `provider` must outlive it.
  explicit StateStore(ExecutionProvider& provider, StatePlaces places = {})
      : provider_(&provider), places_(std::move(places)) {}

  bool Has(const std::string& name) const { return tensors_.contains(name); }
  // In the provider's memory. Errors: no tensor of that name.
  const Tensor& Get(const std::string& name) const;
  // Copies `value`, which lies on the host or with the provider. A tensor of
  // the same dtype and shape is overwritten in place: all that share its memory
  // see the change. Errors: out of memory; AllocateInFile's.
  void Set(const std::string& name, const Tensor& value);
  // As Set, for bytes on the host that may lie in a mapped file, to which
  // nobody has written: they are read into their place (CopyMapped). Errors:
  // CopyMapped's; the tensor may then have some of the bytes.
  void Read(const std::string& name, const Tensor& value);
  // On the host; shares the bytes if the provider's memory is the host's.
  // Errors: no tensor of that name.
  Tensor Host(const std::string& name) const;
  // The same, for a writer of files. The store must outlive it.
  TensorSource Source(const std::string& name) const;
  void Erase(const std::string& name) { tensors_.erase(name); }
  // Adds the first values of the state that the plan moves, that is not here
  // yet and that lies outside. (An executor adds others, in the provider's
  // memory.) Errors: Set's.
  void AddOutside(const Plan& plan);

  const StatePlaces& places() const { return places_; }
  size_t bytes() const;          // of all tensors
  size_t outside_bytes() const;  // of them, outside of the provider's memory

  // All tensors. An executor adds entries and updates them in place; a writer
  // of files reads dtypes and shapes here, and gets the bytes by Host.
  TensorMap& tensors() { return tensors_; }
  const TensorMap& tensors() const { return tensors_; }

 private:
  // A tensor in its place, not initialized.
  Tensor New(const std::string& name, DType dtype, const Shape& shape);

  ExecutionProvider* provider_;
  StatePlaces places_;
  TensorMap tensors_;
};

}  // namespace onnx_fp8
