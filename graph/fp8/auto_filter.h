// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "onnx_fp8/recipe.h"
#include "onnx_fp8/speed_table.h"

namespace onnx_fp8 {

// Whether FP8 makes a layer's forward and backward faster.
struct Prediction {
  bool faster = false;
  std::optional<double> speedup;  // of all its products; none: not published
  std::string reason;             // "h100: 0.64x", "measured: 0.64x"
};

// For y (M,N) = x (M,K) w (K,N) and its gradients. m = -1 means that M is not
// known; it is then taken as large.
//
// h100: torchao's thresholds on K and N (torchao/float8/float8_linear_utils.py)
// for scales of whole tensors, and for rows if M is not known; else its table
// for rowwise. torchao has no figures for recipes with wgrad in high precision.
// They get the same ones, with a speed-up of at most 1.5: two products of three
// gain.
//
// A measured table of products: the time of the three products, and of
// quantizing each operand as often as the recipe needs, against the time of
// three fp32 products. A measured table of layers: its figure for the layer,
// whatever the recipe; it was measured with one recipe.
//
// REQUIRES: a recipe that passed CheckKnown.
Prediction PredictLayer(const SpeedTable& table, const Recipe& recipe,
                        int64_t m, int64_t k, int64_t n);

// Errors: the table has no figures for the recipe (h100 and blocks).
void CheckKnown(const SpeedTable& table, const Recipe& recipe);

}  // namespace onnx_fp8
