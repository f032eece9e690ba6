// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace onnx_fp8 {

// The part of a run's state that the ranks of a mesh divide among them. Each
// rank keeps a part of every trained parameter and of its moments: rows of the
// first axis. Ranks differ in when the whole parameters and the whole gradients
// exist.
enum class Sharding {
  kNone,  // every rank keeps all state
  // ZeRO-1: a rank has whole parameters during a step, and whole gradients
  // until the update.
  kOptimizer,
  // ZeRO-2 (PyTorch's SHARD_GRAD_OP): a rank has whole parameters during a
  // step. It adds each gradient over the ranks at once, in each micro-batch.
  kGradients,
  // ZeRO-3 (PyTorch's FULL_SHARD): a rank has a whole parameter only while the
  // forward reads it, and again while the backward reads it. FP8 copies of a
  // whole weight are made again, too.
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
