// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>

#include "base/hash.h"
#include "base/random.h"
#include "providers/kernel.h"

namespace onnx_fp8 {

// Seed of a node that draws random values, for RandomBits. It is made of the
// run's draw number and the attribute `seed`, or the node's name if there is
// none, so that two nodes draw different values and a repeated run draws the
// same.
inline uint64_t SeedOf(const KernelContext& ctx) {
  uint64_t own;
  if (!ctx.Has("seed")) {
    own = Hash(ctx.Where());
  } else if (ctx.node().Is("Dropout")) {
    own = static_cast<uint64_t>(ctx.Int("seed", 0));
  } else {
    own = std::bit_cast<uint32_t>(ctx.Float("seed", 0));
  }
  return RandomBits(own, ctx.draw());
}

}  // namespace onnx_fp8
