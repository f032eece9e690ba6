// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "onnx_fp8/tensor.h"

namespace onnx_fp8 {

// The CRC-32 of a tensor's bytes, as text. Computed on all threads. No page of
// a mapped file stays in memory. REQUIRES: as CopyMapped's.
std::string Checksum(const Tensor& tensor);

}  // namespace onnx_fp8
