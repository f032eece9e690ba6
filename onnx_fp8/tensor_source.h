// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "base/mapped_file.h"
#include "onnx_fp8/tensor.h"

namespace onnx_fp8 {

// A tensor for a writer of files. Its type is known now; its bytes come when it
// is written. If tensors lie on a device or need a conversion, only one of them
// is in the host's memory at a time.
class TensorSource {
 public:
  // REQUIRES: host memory.
  TensorSource(Tensor tensor)  // NOLINT: a tensor is the simplest source
      : dtype_(tensor.dtype()),
        shape_(tensor.shape()),
        pull_([tensor = std::move(tensor)] { return tensor; }) {}
  // `stored`: a narrower dtype that holds the same numbers, because a file has
  // them so; kUndefined: none is known. REQUIRES: `pull` returns a tensor of
  // this dtype and shape on the host.
  TensorSource(DType dtype, Shape shape, std::function<Tensor()> pull,
               DType stored = DType::kUndefined)
      : dtype_(dtype),
        stored_(stored),
        shape_(std::move(shape)),
        pull_(std::move(pull)) {}

  DType dtype() const { return dtype_; }
  // The narrowest known dtype that holds all of the numbers exactly.
  DType stored() const {
    return stored_ == DType::kUndefined ? dtype_ : stored_;
  }
  const Shape& shape() const { return shape_; }
  size_t bytes() const {
    return static_cast<size_t>(NumElements(shape_)) * ByteSize(dtype_);
  }
  // The tensor, on the host. Errors: `pull`'s.
  Tensor Pull() const { return pull_(); }

 private:
  DType dtype_;
  DType stored_ = DType::kUndefined;
  Shape shape_;
  std::function<Tensor()> pull_;
};

// A tensor that may lie in a mapped file. If it does, each Pull reads it into
// memory of its own (CopyMapped), so no page of the mapping takes memory.
// REQUIRES: as CopyMapped's.
inline TensorSource SourceOfMapped(const Tensor& tensor) {
  if (!MappedFileAt(tensor.raw())) return TensorSource(tensor);
  return TensorSource(tensor.dtype(), tensor.shape(), [tensor] {
    Tensor read = Tensor::Allocate(tensor.dtype(), tensor.shape());
    CopyMapped(tensor.raw(), tensor.bytes(), read.raw());
    return read;
  });
}

using SourceMap = std::map<std::string, TensorSource>;

// REQUIRES: host memory.
inline SourceMap Sources(const TensorMap& tensors) {
  return {tensors.begin(), tensors.end()};
}

}  // namespace onnx_fp8
