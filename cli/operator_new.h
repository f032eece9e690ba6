// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace onnx_fp8 {

// Bytes that the last `new` which threw std::bad_alloc was asked for; 0 if
// there was none, or under AddressSanitizer, which has its own `new`.
size_t BytesOfFailedNew();

}  // namespace onnx_fp8
