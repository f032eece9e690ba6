// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "providers/kernel.h"

namespace onnx_fp8 {

// The shape of a Pad node's result. The pads and axes, inputs 1 and 3, lie on
// the host. Errors: attributes or pads that do not fit x; a constant of another
// dtype, or more than one.
Shape PaddedShape(const KernelContext& ctx);

// By axis and position in the result: the offset of its element in x; -1 for
// the constant. REQUIRES: `padded`, the result's shape, is not empty. Errors:
// an axis that has no elements to repeat.
std::vector<std::vector<int64_t>> PadTables(const KernelContext& ctx,
                                            const Shape& padded);

}  // namespace onnx_fp8
