// SPDX-License-Identifier: Apache-2.0
#include "onnx_fp8/out_of_memory.h"

#include "onnx_fp8/check.h"

namespace onnx_fp8 {

std::string OutOfMemoryText(size_t bytes) {
  return Concat("out of memory: expected ", bytes,
                " bytes more, got none: use smaller batches or a smaller "
                "model, or raise the limit (ulimit -v, a container's)");
}

}  // namespace onnx_fp8
