// SPDX-License-Identifier: Apache-2.0
//
// First values of tensors whose data files are missing, so that a model of any
// size can travel as a graph of a few kilobytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "graph/graph.h"
#include "graph/onnx/onnx_io.h"

namespace onnx_fp8 {

// SessionOptions::init may be "normal:STD" instead of a file's path.
inline constexpr char kDrawnInit[] = "normal:";

// Whether `init` asks for drawn values. `./normal:...` is a file.
bool IsDrawn(std::string_view init);

// Errors: OptionError about an STD that is no positive number. REQUIRES:
// IsDrawn(init).
void CheckDrawn(const std::string& init);

// A first value for the initializer: normal with mean 0 and that deviation, or
// uniform in [-bound, bound). Element i depends on the seed, the initializer's
// name and i alone: the same on every rank and provider.
Tensor DrawNormal(const Value& value, uint64_t seed, float deviation);
Tensor DrawUniform(const Value& value, uint64_t seed, float bound);

// Gives the tensors in `missing`, float initializers, first values by the ways
// in which the graph reads them: scales of norms and other vectors that
// multiply become ones, vectors that are added become zeros, and all others are
// drawn by DrawNormal with the deviation STD of `init`. Comes before the
// passes, which then see a fresh model. Returns a sentence for the user.
// Errors: STD is no positive number; nothing is missing; a tensor that is no
// float initializer, or that the file calls a buffer or constant.
std::string DrawWeights(const std::string& init, const MissingData& missing,
                        uint64_t seed, Graph* graph);

}  // namespace onnx_fp8
