// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>

#include "onnx_fp8/random.h"
#include "providers/kernel.h"

namespace onnx_fp8 {

// Seed of a node that draws random values, for RandomBits: made of the run's
// stream and of the attribute `seed`, or of the node's name where it has none,
// so that two nodes draw different values and a repeated run the same.
inline uint64_t SeedOf(const KernelContext& c) {
  uint64_t own = 14695981039346656037u;  // FNV-1a
  if (!c.Has("seed")) {
    for (unsigned char letter : c.Where()) {
      own = (own ^ letter) * 1099511628211u;
    }
  } else if (c.node().Is("Dropout")) {
    own = static_cast<uint64_t>(c.Int("seed", 0));
  } else {
    own = std::bit_cast<uint32_t>(c.Float("seed", 0));
  }
  return RandomBits(own, c.stream());
}

}  // namespace onnx_fp8
