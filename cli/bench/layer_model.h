// SPDX-License-Identifier: Apache-2.0
//
// Small models for timing a linear layer.
#pragma once

#include <string>

#include "cli/bench/sizes.h"
#include "onnx_fp8/session.h"

namespace onnx_fp8 {

// The operators around the layer: none, or LayerNorm without weights before it
// and a sigmoid behind it. A compiler could fuse both with quantizing.
enum class Surroundings { kNone, kNormAndSigmoid };

// Names in the model. A filter selects the layer by the name `linear`.
inline constexpr char kLayerInput[] = "x";
inline constexpr char kLayerWeight[] = "linear.weight";
inline constexpr char kLayerLoss[] = "loss";

// Writes a model with the input x (M,K), the weight (N,K) as in
// torch.nn.Linear, no bias, and the loss sum(y). The weight's numbers are as
// small as PyTorch makes them, so that a sigmoid does not saturate. Large
// tensors go into files beside it.
void WriteLayerModel(Surroundings surroundings, const ProductSize& size,
                     const std::string& path);

// Writes that model, and returns the options with which a session trains its
// weight only.
SessionOptions LayerOptions(SessionOptions options, Surroundings surroundings,
                            const ProductSize& size, const std::string& path);

}  // namespace onnx_fp8
