// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "onnx_fp8/dtype.h"
#include "providers/cuda/core/queue.h"

namespace onnx_fp8::cuda {

// to[i] = x[i] in another dtype, by C's rules; floats of 16 bits are rounded to
// nearest. Errors: a pair that the GPU's kernels don't convert; `where` names
// the node. Traffic: x is read once, `to` is written once.
void Convert(const Queue& queue, const std::string& where, const void* x,
             DType dtype, void* to, DType to_dtype, int64_t n);

}  // namespace onnx_fp8::cuda
