// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "providers/ort/ort_api.h"

namespace onnx_fp8 {

// Adds custom ops to the session, for runtimes without our execution provider
// and for nodes that it does not claim: the ops of our own domain.
void AddCustomOps(OrtSessionOptions* session);

}  // namespace onnx_fp8
