// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace onnx_fp8 {

// The part of a run's state that the ranks of a mesh divide among them. Each
// rank keeps a part of every trained parameter and of its moments: rows of the
// first axis. Ranks differ in when the whole parameters and the whole gradients
// exist.
enum class Sharding {
  kNone,  // every rank keeps all state
  // ZeRO-1: whole parameters exist during a step, and whole gradients until its
  // update.
  kOptimizer,
  // ZeRO-2 (PyTorch's SHARD_GRAD_OP): whole gradients exist until they are
  // added over the ranks, also of each micro-batch.
  kGradients,
  // ZeRO-3 (PyTorch's FULL_SHARD): whole parameters exist only while the
  // forward uses them, and again while the backward uses them. (An FP8 copy
  // that a rank makes of a whole weight, not of its part, stays in between.)
  kParameters,
};

// The widest format in which a whole parameter is gathered from its parts.
enum class GatherAs {
  // A weight that products read in FP8 with one scale travels as FP8; the ranks
  // know the amax of the whole. Other parameters travel as with kBFloat16.
  kFloat8,
  // A parameter that a 16-bit run rounds travels as 16 bits, others as float.
  kBFloat16,
  kFloat,
};

struct ShardSpec {
  Sharding what = Sharding::kNone;
  GatherAs gather = GatherAs::kFloat8;
};

}  // namespace onnx_fp8
