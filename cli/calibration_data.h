// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "onnx_fp8/dataset.h"
#include "onnx_fp8/session.h"
#include "training/run/option.h"

namespace onnx_fp8 {

// The data that the options name, in batches as the session's model takes
// them: shuffled, without a last partial batch. Its notes are told. Errors: as
// LayOutData's and Dataset's.
Dataset CalibrationData(const OptionSet& options,
                        const TrainingSession& session);

}  // namespace onnx_fp8
