// SPDX-License-Identifier: Apache-2.0
#include "cli/shard_flags.h"

#include "cli/ranks.h"

namespace onnx_fp8 {

void ShardFlags::AddTo(Flags& flags) {
  flags.Text("--mesh", &mesh,
             "dp=N: N ranks, each with a GPU or some cores, share each batch; "
             "tp=T: T ranks divide the layers; replicate=R,dp=N: R groups hold "
             "the same state; together, as dp=2,tp=4 (default: one rank). "
             "mpirun -n N or torchrun starts the ranks of train");
  flags.Choice("--shard", &shard,
               {"none", "optimizer", "gradients", "parameters"},
               "state that they divide: none, optimizer (ZeRO-1), gradients "
               "(ZeRO-2) or parameters (ZeRO-3, FSDP) (default: none)");
  flags.Choice("--gather-dtype", &gather_dtype, {"fp8", "bfloat16", "float32"},
               "widest format in which divided weights travel: fp8, bfloat16 "
               "or float32 (default: fp8)");
  flags.Int("--bucket-bytes", &bucket_bytes, 0,
            "gradients travel together, with at most so many bytes in a call "
            "(default: 26214400)");
}

void ShardFlags::Check(const Flags& flags) const {
  if (shard != "none" && MeshOf(mesh).dp == 1) {
    throw UsageError("--shard needs --mesh dp=N with N of 2 or more");
  }
  if (flags.Has("--gather-dtype") && shard == "none") {
    throw UsageError("--gather-dtype needs --shard");
  }
}

bool ShardFlags::DividesState() const {
  return shard != "none" || MeshOf(mesh).tp > 1;
}

ShardSpec ShardFlags::Make() const {
  ShardSpec spec;
  spec.what = shard == "optimizer"    ? Sharding::kOptimizer
              : shard == "gradients"  ? Sharding::kGradients
              : shard == "parameters" ? Sharding::kParameters
                                      : Sharding::kNone;
  spec.gather = gather_dtype == "float32"    ? GatherAs::kFloat
                : gather_dtype == "bfloat16" ? GatherAs::kBFloat16
                                             : GatherAs::kFloat8;
  return spec;
}

}  // namespace onnx_fp8
