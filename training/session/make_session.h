// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "collectives/mesh.h"
#include "onnx_fp8/session.h"
#include "providers/provider.h"

namespace onnx_fp8 {

// A session on the caller's provider; those in `options` are ignored. Errors:
// TrainingSession::Create's.
//
// `ranks`: the processes that train together; null: this one alone. It must
// outlive the session. All ranks call Step at the same time and get the loss of
// the whole batch. A rank gives the samples of its data_rank(). Eval is each
// rank's own, unless ranks divide state. Errors of a rank: the others wait for
// it, so Abort must be called.
std::unique_ptr<TrainingSession> MakeSession(
    const SessionOptions& options, std::unique_ptr<ExecutionProvider> provider,
    const MeshRanks* ranks = nullptr);

}  // namespace onnx_fp8
