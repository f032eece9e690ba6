// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "graph/builder.h"

namespace onnx_fp8 {

// ONNX gives no body to DFT, STFT, MelWeightMatrix and Det, and a slow one to
// LinearAttention. Here they have one for shapes and sizes that are known:
// transforms are products with a constant matrix, so they train and run on
// every provider.
bool HasExtraBody(const Node& node);

// The results of the node; new nodes read `in`, its operands. REQUIRES:
// HasExtraBody. Errors: sizes that are computed, or too large for a matrix.
std::vector<Value*> BuildExtraBody(Builder& b, const Node& node,
                                   const std::vector<Value*>& in);

// linear_attention_body.cc has this one.
std::vector<Value*> LinearAttentionBody(Builder& b, const Node& node,
                                        const std::vector<Value*>& in);

}  // namespace onnx_fp8
