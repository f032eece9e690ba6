// SPDX-License-Identifier: Apache-2.0
//
// Cases for factors that may interact: any two of their levels meet.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace onnx_fp8 {

// A level of a factor, both by number.
struct FactorLevel {
  size_t factor, level;
  auto operator<=>(const FactorLevel&) const = default;
};

// Levels of two factors. The first factor has the smaller number.
using LevelPair = std::pair<FactorLevel, FactorLevel>;

// All pairs of levels. `levels`: how many levels each factor has.
std::vector<LevelPair> PairsOf(const std::vector<size_t>& levels);

// Cases, each with a level for each factor. No case has a refused pair, and
// each other pair is in a case. Greedy: there are few cases. The result depends
// on nothing but the arguments. REQUIRES: to any levels without a refused pair,
// each other factor has a level that may be added.
std::vector<std::vector<size_t>> PairwiseCases(
    const std::vector<size_t>& levels, const std::vector<LevelPair>& refused);

}  // namespace onnx_fp8
