// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "onnx_fp8/session.h"
#include "providers/provider.h"

namespace onnx_fp8 {

// A session on the caller's provider; options.provider is ignored. Errors:
// TrainingSession::Create's.
std::unique_ptr<TrainingSession> MakeSession(
    const SessionOptions& options, std::unique_ptr<ExecutionProvider> provider);

}  // namespace onnx_fp8
