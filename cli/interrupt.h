// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace onnx_fp8 {

// From now on Ctrl-C (SIGINT) and SIGTERM are noted instead of ending the
// process; a second one ends it. A full disk or a closed pipe give errors
// instead of signals.
void CatchInterrupts();

// True once a signal was noted.
bool Interrupted();

}  // namespace onnx_fp8
