// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace onnx_fp8 {

// The size of the last request for which `new` threw std::bad_alloc; 0 if there
// was none, or under AddressSanitizer, which has its own `new`.
size_t BytesOfFailedNew();

}  // namespace onnx_fp8
