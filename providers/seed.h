// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <string>

#include "base/hash.h"
#include "base/random.h"
#include "providers/kernel.h"

namespace onnx_fp8 {

// The part of a node's seed that is its own: the attribute `seed`, or the
// node's name if there is none, so that two nodes draw different values.
inline uint64_t OwnSeedOf(const KernelContext& ctx) {
  if (!ctx.Has("seed")) return Hash(std::string(ctx.Where()));
  if (ctx.node().Is("Dropout"))
    return static_cast<uint64_t>(ctx.Int("seed", 0));
  return std::bit_cast<uint32_t>(ctx.Float("seed", 0));
}

// Seed of a node that draws random values, for RandomBits. A run with the same
// draw number draws the same.
inline uint64_t SeedOf(const KernelContext& ctx) {
  return RandomBits(OwnSeedOf(ctx), ctx.draw());
}

}  // namespace onnx_fp8
