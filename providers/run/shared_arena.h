// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>

#include "providers/provider.h"

namespace onnx_fp8 {

// Memory for intermediate results that several executors share. It is as large
// as their largest plan needs. It keeps no data between two runs. REQUIRES: two
// of the executors never run at the same time.
class SharedArena {
 public:
  // `provider` must outlive it.
  explicit SharedArena(ExecutionProvider& provider) : provider_(provider) {}

  // Makes it at least so large; data() may change. Not while an executor runs.
  // Errors: out of memory.
  void Reserve(size_t bytes) {
    if (data_ && bytes <= bytes_) return;
    data_.reset();  // first, so that both need not fit side by side
    data_ = provider_.Allocate(bytes);
    bytes_ = bytes;
  }

  void* data() const { return data_.get(); }
  size_t bytes() const { return bytes_; }

 private:
  ExecutionProvider& provider_;
  std::shared_ptr<void> data_;
  size_t bytes_ = 0;
};

}  // namespace onnx_fp8
