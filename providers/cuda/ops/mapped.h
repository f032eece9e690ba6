// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "providers/kernel.h"

namespace onnx_fp8::cuda {

// y[i] = x[Σ tables[d][i[d]]] for every index i of the dense result, or *fill,
// on the device, if one of the tables holds -1; null: 0. There is one table for
// each axis, as long as the axis; the result is not empty. Errors: more than 8
// axes. Traffic: each element of the result is written once, and what it holds
// is read once, as is an entry of each table, mostly from a cache.
void CopyMapped(const KernelContext& ctx,
                const std::vector<std::vector<int64_t>>& tables, size_t width,
                const void* x, const void* fill, void* y);

}  // namespace onnx_fp8::cuda
