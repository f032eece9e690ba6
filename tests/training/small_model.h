// SPDX-License-Identifier: Apache-2.0
//
// A classifier of two layers, its batches and its session, for tests of
// sessions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "onnx_fp8/session.h"
#include "tests/training/files.h"

namespace onnx_fp8 {

using Batches = std::vector<TensorMap>;

inline constexpr int64_t kIn = 8, kHidden = 16, kClasses = 4;

// Uniform in [-1, 1).
Tensor Random(const Shape& shape, uint64_t seed);

// Random "x" (size, kIn) and "labels" (size).
TensorMap Batch(uint64_t seed, int64_t size = 6);

// Writes the model: linear layers "fc.weight" and "out.weight" with Relu
// between. With `stochastic` it also has a BatchNormalization "bn" and a
// Dropout, both in training mode. Returns its path.
std::string WriteMlp(const TempDir& dir, bool stochastic, float dropped = 0.5f);

// Cross entropy and the recipe of that name.
SessionOptions Options(const std::string& model,
                       const std::string& recipe = "off");

// Parameters and running statistics.
TensorMap Weights(TrainingSession& session, const TempDir& dir);

void ExpectSame(const TensorMap& a, const TensorMap& b);
bool Same(const TensorMap& a, const TensorMap& b);

}  // namespace onnx_fp8
