// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

namespace onnx_fp8 {

// Bytes that a rank receives in one call. There are N = `ranks` ranks. The
// operands of the call have n = `count` elements together. An element has
// `element` bytes. Received elements:
//   AllReduce      2 (N − 1) · n / N  (n is rounded up to N equal blocks)
//   AllGather      (N − 1) · n
//   ReduceScatter  (N − 1) · n / N
//   Broadcast      n  (on the root 0)
// One rank receives nothing. REQUIRES: op is one of these; ReduceScatter's n is
// a multiple of N.
int64_t ReceivedBytes(std::string_view op, int64_t count, int64_t element,
                      int64_t ranks);

}  // namespace onnx_fp8
