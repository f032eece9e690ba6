// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/emulation/device_math.h"

#include <cmath>

#include "tests/cuda/emulation/settings.h"

namespace onnx_fp8::emulation {
namespace {

// In [-ulps, ulps]: the same for the same number, as on a device.
int Error(double exact, int ulps) {
  uint64_t h =
      (std::bit_cast<uint64_t>(exact) ^ Numerics()) * 0x9E3779B97F4A7C15;
  return static_cast<int>((h >> 40) % static_cast<unsigned>(2 * ulps + 1)) -
         ulps;
}

// Whether it may be off: 0 and infinity are exact.
template <typename T>
bool HasError(T x) {
  return Numerics() != 0 && std::isnormal(x);
}

}  // namespace

float Inexact(double exact, int ulps) {
  auto x = static_cast<float>(exact);
  if (!HasError(x)) return x;
  auto y = std::bit_cast<float>(std::bit_cast<int>(x) + Error(exact, ulps));
  return std::isnormal(y) ? y : x;
}

double InexactDouble(double exact, int ulps) {
  if (!HasError(exact)) return exact;
  auto y =
      std::bit_cast<double>(std::bit_cast<int64_t>(exact) + Error(exact, ulps));
  return std::isnormal(y) ? y : exact;
}

}  // namespace onnx_fp8::emulation
