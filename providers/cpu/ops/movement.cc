// SPDX-License-Identifier: Apache-2.0
#include "providers/ops/movement.h"

#include "providers/cpu/strided.h"
#include "providers/kernel.h"

namespace onnx_fp8 {
namespace {

void Copy(KernelContext&, std::span<const int64_t> shape, size_t width,
          const void* src, std::span<const int64_t> src_strides, void* dst,
          std::span<const int64_t> dst_strides) {
  CopyStrided(shape, width, src, src_strides, dst, dst_strides);
}

}  // namespace

void RegisterMovement(KernelRegistry& r) { Movement<Copy>::Register(r); }

}  // namespace onnx_fp8
