// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace onnx_fp8 {

// Largest finite |x| (0 if there is none), and whether any x is NaN or Inf.
struct Amax {
  float finite = 0.0f;
  bool non_finite = false;

  void Add(const Amax& other) {
    finite = other.finite > finite ? other.finite : finite;
    non_finite |= other.non_finite;
  }
};

}  // namespace onnx_fp8
