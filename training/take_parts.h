// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "training/checkpoint.h"
#include "training/sharded_state.h"

namespace onnx_fp8 {

// All tensors of the checkpoint become those that this rank keeps, in
// checkpoint->state.
void TakeParts(Checkpoint* checkpoint, const ShardedState& sharded);

}  // namespace onnx_fp8
