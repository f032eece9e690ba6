// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "providers/kernel.h"

namespace onnx_fp8::cuda {

// A StridedCopy (providers/ops/movement.h). Errors: more than 8 axes that can't
// be merged. Traffic: each element is read once and written once.
void CopyStrided(KernelContext& ctx, std::span<const int64_t> shape,
                 size_t width, const void* src,
                 std::span<const int64_t> src_strides, void* dst,
                 std::span<const int64_t> dst_strides);

}  // namespace onnx_fp8::cuda
