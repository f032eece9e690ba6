// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace onnx_fp8 {

// Bytes per second that all threads of the pool together read and write in a =
// b + 3 c over arrays of 64 MiB each, counted as in the STREAM benchmark. Each
// call measures anew, in about a tenth of a second.
double PeakBandwidth();

}  // namespace onnx_fp8
