// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace onnx_fp8 {

// An amax cell of a plan: memory of the provider. One kernel leaves the amax of
// a result in it, and another kernel reads it. The kernels of one provider
// agree on its content; CPU kernels keep an Amax there.
struct AmaxCell {
  alignas(16) std::byte bytes[16];
};

// Largest finite |x| (0 if there is none), and whether any x is NaN or Inf.
struct Amax {
  float finite = 0.0f;
  bool non_finite = false;

  void Add(const Amax& other) {
    finite = other.finite > finite ? other.finite : finite;
    non_finite |= other.non_finite;
  }
};

static_assert(sizeof(Amax) <= sizeof(AmaxCell));

}  // namespace onnx_fp8
