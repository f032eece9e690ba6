// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "training/ranks/sharded_state.h"
#include "training/state/checkpoint.h"

namespace onnx_fp8 {

// All tensors of the checkpoint become those that this rank keeps, in
// checkpoint->state.
void TakeParts(Checkpoint* checkpoint, const ShardedState& sharded);

}  // namespace onnx_fp8
