// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "collectives/communicator.h"
#include "onnx_fp8/session.h"
#include "providers/provider.h"

namespace onnx_fp8 {

// A session on the caller's provider; options.provider is ignored. Errors:
// TrainingSession::Create's.
//
// `ranks`: the processes that train together; null: this one alone. It must
// outlive the session. All ranks call Step at the same time, each with its
// share of the batch, and get the loss of the whole batch. Their state stays
// equal. Eval is each rank's own. Errors of a rank: the others wait for it, so
// Abort must be called.
std::unique_ptr<TrainingSession> MakeSession(
    const SessionOptions& options, std::unique_ptr<ExecutionProvider> provider,
    Communicator* ranks = nullptr);

}  // namespace onnx_fp8
