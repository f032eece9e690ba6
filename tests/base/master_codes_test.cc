// SPDX-License-Identifier: Apache-2.0
#include "base/master_codes.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "onnx_fp8/float8.h"

namespace onnx_fp8 {
namespace {

// The formulas in integers that don't wrap around.
struct PlainCode {
  int64_t half, correction;
};

PlainCode PlainSplit16(int64_t bits) {
  int64_t low = bits % 65536;
  if (low >= 32768) low -= 65536;
  return {(bits - low) / 65536, low};
}

PlainCode PlainSplit8(int64_t bits) {
  const int64_t odd = bits / 256 % 2;
  const int64_t rounded = (bits + 127 + odd) / 256;  // in units of 256
  int64_t low = rounded % 256;
  if (low >= 128) low -= 256;
  return {(rounded - low) / 256, low};
}

bool IsNanPattern(uint32_t bits) { return (bits & 0x7FFFFFFF) > 0x7F800000; }

// Lower halves where roundings change, and others.
std::vector<uint32_t> LowerHalves() {
  std::vector<uint32_t> lower = {0,      1,      0x7E,   0x7F,   0x80,   0x81,
                                 0xFF,   0x100,  0x17F,  0x180,  0x7F7F, 0x7F80,
                                 0x7F81, 0x7FFF, 0x8000, 0x8001, 0x807F, 0x8080,
                                 0xFF7F, 0xFF80, 0xFFFF};
  for (uint32_t i = 0; i < 11; ++i) lower.push_back(i * 5953 + 7);
  return lower;
}

template <typename Fn>
void ForBits(Fn fn) {
  const std::vector<uint32_t> lower = LowerHalves();
  for (uint32_t upper = 0; upper < 65536; ++upper) {
    for (uint32_t low : lower) fn(upper << 16 | low);
  }
}

TEST(MasterCodes, FollowTheFormulas) {
  int64_t wrong = 0;
  ForBits([&](uint32_t bits) {
    const uint32_t sure =
        IsNanPattern(bits) ? (bits & 0x80000000) | 0x7FC00000 : bits;
    const PlainCode wide = PlainSplit16(sure), narrow = PlainSplit8(sure);
    const auto a = EncodeMaster<16>(bits);
    const auto b = EncodeMaster<8>(bits);
    wrong += a.half != wide.half || a.correction != wide.correction;
    wrong += b.half != narrow.half || b.correction != narrow.correction;
  });
  EXPECT_EQ(wrong, 0);
}

TEST(MasterCodes, SixteenBitsRestoreEachFloat) {
  int64_t wrong = 0;
  ForBits([&](uint32_t bits) {
    const auto code = EncodeMaster<16>(bits);
    const uint32_t back = DecodeMaster<16>(code.half, code.correction);
    wrong += back != CanonicalNan(bits);
  });
  EXPECT_EQ(wrong, 0);
}

// The worst error is half a unit of the 16 bits that stay.
TEST(MasterCodes, EightBitsAreNearAndStay) {
  int64_t wrong = 0;
  ForBits([&](uint32_t bits) {
    const auto code = EncodeMaster<8>(bits);
    const uint32_t back = DecodeMaster<8>(code.half, code.correction);
    const auto again = EncodeMaster<8>(back);
    wrong += again.half != code.half || again.correction != code.correction;
    if (IsNanPattern(bits)) return;
    const auto distance =
        static_cast<int64_t>(back) - static_cast<int64_t>(bits);
    wrong += std::abs(distance) > 128 || (distance != 0 && bits % 256 == 0);
  });
  EXPECT_EQ(wrong, 0);
}

// Away from zero in the middle, where rounding to even may go the other way.
TEST(MasterCodes, TheHalfIsANearestBFloat16) {
  int64_t wrong = 0, ties = 0;
  ForBits([&](uint32_t bits) {
    if (IsNanPattern(bits)) return;
    const uint16_t half = EncodeMaster<16>(bits).half;
    const uint16_t even = EncodeBFloat16(std::bit_cast<float>(bits)).bits;
    if (half == even) return;
    const bool tie = (bits & 0xFFFF) == 0x8000;
    ties += tie;
    wrong += !tie || half != even + 1;
  });
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(ties, 32640);  // half of all finite ones
}

TEST(MasterCodes, TheHalfOfANanIsOne) {
  int64_t wrong = 0;
  ForBits([&](uint32_t bits) {
    if (!IsNanPattern(bits)) return;
    wrong += !std::isnan(Decode(BFloat16{EncodeMaster<16>(bits).half}));
    wrong += !std::isnan(Decode(BFloat16{EncodeMaster<8>(bits).half}));
  });
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace onnx_fp8
