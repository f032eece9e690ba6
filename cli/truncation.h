// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace onnx_fp8 {

// From now on, if a file of ours is cut while it is mapped, the process ends
// with a message that names the file and exit code 1. SIGBUS for other reasons
// has the same effect as before.
void CatchTruncation();

}  // namespace onnx_fp8
