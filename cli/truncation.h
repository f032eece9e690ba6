// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace onnx_fp8 {

// From now on a file of ours that is cut while it is mapped ends the process
// with a message that names it and exit code 1. What else raises SIGBUS has the
// effect that it had before.
void CatchTruncation();

}  // namespace onnx_fp8
