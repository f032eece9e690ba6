// SPDX-License-Identifier: Apache-2.0
//
// The nodes of a training step of LLaMA-2-70B, one by one, for `bench nodes`.
#pragma once

#include <cstdint>
#include <vector>

#include "cli/bench/node_case.h"

namespace onnx_fp8 {

struct NodeSizes {
  int64_t tokens = 8192;
  int64_t heads = 64, kv_heads = 8, head_size = 128;
  int64_t hidden = 28672;  // width of the feed-forward layer
  int64_t vocabulary = 32000;
  std::vector<int64_t> sequences = {2048, 8192};  // of attention

  int64_t width() const { return heads * head_size; }
  int64_t qkv() const { return width() + 2 * kv_heads * head_size; }
};

// So small that a CPU computes all nodes in a second.
NodeSizes SmallNodeSizes();

// Products of its linear layers, one of which is a cube: forward, dgrad and
// wgrad, unquantized and with tensorwise, rowwise and blockwise scales.
std::vector<NodeCase> ProductCases(const NodeSizes& sizes);
// Quantizers, norms, activations, losses, attention, rotary embeddings,
// optimizers and moves of a step of this dtype.
std::vector<NodeCase> OtherCases(const NodeSizes& sizes, DType dtype);

}  // namespace onnx_fp8
