// SPDX-License-Identifier: Apache-2.0
#include "training/session/take_parts.h"

namespace onnx_fp8 {

void TakeParts(Checkpoint* checkpoint, const ShardedState& sharded) {
  for (auto& [name, tensor] : checkpoint->state) {
    if (auto shard = sharded.Find(name)) tensor = PartOf(tensor, *shard);
  }
  for (auto& [name, tensor] : checkpoint->shards) {
    Tensor& kept = checkpoint->state[name];
    auto shard = sharded.Find(name);
    if (!shard) {
      kept = tensor.Whole();
    } else if (tensor.ranks == 1 && !shard->tensor_part) {
      kept = WithZeroRows(tensor.Rows(shard->begin, shard->rows), *shard);
    } else {
      kept = PartOf(tensor.Whole(), *shard);
    }
  }
}

}  // namespace onnx_fp8
