// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace onnx_fp8 {

// Bytes per second that all threads of the pool read and write together, in
// a = b + 3 c over arrays of 64 MiB each, counted as the STREAM benchmark does.
// Measured anew by each call, in about a tenth of a second.
double PeakBandwidth();

}  // namespace onnx_fp8
