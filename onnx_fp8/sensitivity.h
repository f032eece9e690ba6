// SPDX-License-Identifier: Apache-2.0
//
// Which layers of a model stand which FP8 recipe, measured on some batches.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "onnx_fp8/dataset.h"
#include "onnx_fp8/recipe.h"
#include "onnx_fp8/session.h"

namespace onnx_fp8 {

// The noise of one product of a layer: the FP8 product beside the product of
// its operands before their casts.
struct ProductNoise {
  std::string gemm;  // "forward", "dgrad" or "wgrad"
  // In dB, the lesser one of CastStatistics' Sqnr and LineSqnr. The worst of
  // the products of this role that read the weight.
  double sqnr = 0;
  std::string operand;      // the noisier one of the two; "": none has noise
  double operand_sqnr = 0;  // likewise
};

// A layer that runs in FP8 alone, under one recipe.
struct LayerTrial {
  std::vector<ProductNoise> products;  // forward, dgrad, wgrad; those in FP8
  double loss_change = 0;  // the loss less the loss in high precision
};

struct LayerSensitivity {
  std::string fqn;                 // of its weight
  std::vector<LayerTrial> trials;  // by recipe, as far as they were tried
  Recipe chosen;                   // off: no product in FP8
  std::string reason;              // why the first recipe was not chosen
};

struct Sensitivity {
  double loss = 0;  // in high precision
  std::vector<LayerSensitivity> layers;
};

struct ComparedRecipe {
  std::string name;  // for people
  Recipe recipe;
};

struct SensitivitySpec {
  SessionOptions options;  // its recipe and filter.recipes do not count
  std::vector<ComparedRecipe> recipes;  // the preferred one first
  double sqnr = 20;                     // in dB, of each product
  int64_t batches = 4;
  bool first_only = false;  // try no recipe after the one that is chosen
  // Gets the number of trials that are done and their total. False ends the
  // measurement: MeasureSensitivity returns nullopt.
  std::function<bool(int64_t, int64_t)> progress = {};
};

// Computes the gradients of the first batches with one layer in FP8 at a time,
// under each recipe, and chooses for each layer the first recipe under which
// all of its products have the SQNR. If there is none, it takes the recipe
// under which most of them have it, and runs the others in high precision.
// Memory: a copy of the batches beside a session. Errors: TrainingSession's; a
// recipe with delayed or static scales; a model without a layer in FP8.
std::optional<Sensitivity> MeasureSensitivity(const SensitivitySpec& spec,
                                              const Dataset& data);

}  // namespace onnx_fp8
