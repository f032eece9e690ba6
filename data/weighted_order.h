// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "data/pass_order.h"

namespace onnx_fp8 {

// Samples of several sources, drawn by weights. In each 65536 draws every
// source has its share, up to one draw, at places that depend on the seed and
// on the number of the draw. A source gives its samples in the order of its own
// passes.
class WeightedOrder {
 public:
  // `sizes`: samples of each source; `weights` need no sum. REQUIRES: as many
  // weights as sizes, PassOrder's. Errors: a weight that is not finite and
  // positive, or too small for a draw.
  WeightedOrder(const std::vector<int64_t>& sizes,
                const std::vector<double>& weights, uint64_t seed, bool shuffle,
                int64_t block);

  // The sample of a draw, from 0 on: a number below the sum of sizes, source
  // after source.
  int64_t At(int64_t draw);

  // How much of the draws a source has.
  double Share(size_t source) const;

 private:
  struct Source {
    PassOrder order;
    int64_t begin;      // of its samples
    int64_t in_period;  // draws
  };
  // A draw of a period: the source, and how many of the period's draws it had
  // before.
  struct Draw {
    uint32_t source;
    uint32_t before;
  };
  void OpenPeriod(int64_t period);

  uint64_t seed_;
  std::vector<Source> sources_;
  int64_t period_ = -1;  // a cache: the period that was asked for last
  std::vector<Draw> draws_;
};

}  // namespace onnx_fp8
