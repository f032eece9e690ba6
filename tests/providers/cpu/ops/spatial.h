// SPDX-License-Identifier: Apache-2.0
//
// Spatial axes in the definitions of convolutions and pools.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

namespace onnx_fp8 {

using Ints = std::vector<int64_t>;
using Three = std::array<int64_t, 3>;

// Spatial sizes as three axes, missing ones in front.
inline Three InThree(const Ints& v, int64_t fill) {
  Three a = {fill, fill, fill};
  std::copy(v.begin(), v.end(), a.end() - static_cast<int64_t>(v.size()));
  return a;
}

}  // namespace onnx_fp8
