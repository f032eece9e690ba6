// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>

#include "onnx_fp8/tensor.h"

namespace onnx_fp8 {

// Memory for packed blocks, kept for the owner's next product because fresh
// pages cost more than the copy. It only grows.
class Scratch {
 public:
  // At least `bytes`, aligned to 64; the old content is lost.
  char* Get(size_t bytes) {
    if (bytes > size_) {
      memory_.reset();
      size_ = 0;
      memory_ = AllocateBytes(bytes);
      size_ = bytes;
    }
    return static_cast<char*>(memory_.get());
  }

 private:
  std::shared_ptr<void> memory_;
  size_t size_ = 0;
};

}  // namespace onnx_fp8
