// SPDX-License-Identifier: Apache-2.0
#include "base/moment_codes.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "onnx_fp8/float8.h"

namespace onnx_fp8 {
namespace {

// By the formula, in doubles.
uint32_t RoundedBy(double y, uint32_t draw) {
  const double ulp = std::ldexp(1, std::max(std::ilogb(y), -6) - 3);
  const double q = std::floor(y / ulp + draw / 65536.0) * ulp;
  return EncodeE4M3(static_cast<float>(std::min(q, 448.0))).bits;
}

TEST(RoundE4M3, FollowsTheFormula) {
  constexpr uint32_t kFirst = std::bit_cast<uint32_t>(kLeastRoot);
  constexpr uint32_t kLast = std::bit_cast<uint32_t>(449.0f);
  // A prime number, so that all low bits occur.
  for (uint32_t bits = kFirst; bits < kLast; bits += 10007) {
    for (uint32_t draw : {0u, 1u, 0x1234u, 0x7FFFu, 0x8000u, 0xFFFFu}) {
      const double y = double{std::bit_cast<float>(bits)};
      ASSERT_EQ(RoundE4M3(bits, draw), RoundedBy(y, draw)) << y << " " << draw;
    }
  }
}

TEST(RoundE4M3, NumbersThatAreCodesStay) {
  for (uint32_t code = 1; code < kLostMoment; ++code) {
    const float y = Decode(E4M3{static_cast<uint8_t>(code)});
    for (uint32_t draw : {0u, 0x8000u, 0xFFFFu}) {
      EXPECT_EQ(RoundE4M3(std::bit_cast<uint32_t>(y), draw), code);
    }
  }
  EXPECT_EQ(Decode(E4M3{1}), kLeastRoot);
}

TEST(RoundE4M3, RoundsUpInProportion) {
  for (double y : {0.0041, 0.3, 5.03, 447.0}) {
    const uint32_t bits = std::bit_cast<uint32_t>(static_cast<float>(y));
    double mean = 0;
    for (uint32_t draw = 0; draw < 65536; ++draw) {
      const auto code = static_cast<uint8_t>(RoundE4M3(bits, draw));
      mean += double{Decode(E4M3{code})} / 65536;
    }
    EXPECT_NEAR(mean, y, 2e-5 * y);
  }
}

TEST(MomentScale, MakesTheLargestElement448) {
  EXPECT_EQ(MomentScale(448), 1);
  EXPECT_EQ(MomentScale(3), 3 / 448.0f);
  EXPECT_EQ(MomentScale(0), 0x1p-126f);
  EXPECT_EQ(MomentScale(1e-40f), 0x1p-126f);
}

TEST(MomentBlocks, EndWithTheirRow) {
  for (int64_t columns : {1, 127, 128, 129, 256, 300}) {
    const MomentBlocks blocks{5, columns};
    EXPECT_EQ(blocks.Begin(blocks.count()), 5 * columns);
    for (int64_t b = 0; b < blocks.count(); ++b) {
      const int64_t begin = blocks.Begin(b), end = blocks.Begin(b + 1);
      EXPECT_LE(end - begin, kMomentBlock);
      EXPECT_EQ(begin / columns, (end - 1) / columns);
      EXPECT_EQ(begin % columns % kMomentBlock, 0);
      for (int64_t i : {begin, end - 1}) EXPECT_EQ(blocks.Of(i), b);
    }
  }
}

}  // namespace
}  // namespace onnx_fp8
