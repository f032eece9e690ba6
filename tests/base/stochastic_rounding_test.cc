// SPDX-License-Identifier: Apache-2.0
#include "base/stochastic_rounding.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace onnx_fp8 {
namespace {

TEST(MixBits, GivesKnownWords) {
  EXPECT_EQ(MixBits(0), 0u);
  EXPECT_EQ(MixBits(1), 0x688990C0u);
  EXPECT_EQ(MixBits(2), 0xD1132181u);
  EXPECT_EQ(MixBits(0x80000000), 0xCC4B4124u);
  EXPECT_EQ(MixBits(0x12345678), 0xF5E71C96u);
  EXPECT_EQ(MixBits(0xFFFFFFFF), 0x6768824Au);
}

// Integers of Python computed these numbers. The places of the draws are 0, 1,
// 2, 2^32 - 1, 2^32, 2^32 + 1 and 5 · 2^32 + 7.
struct KnownDraws {
  int64_t seed;
  uint32_t stream;
  int64_t update;
  uint32_t key;
  uint32_t draws[7];
};

constexpr KnownDraws kKnown[] = {
    {0, 0, 0, 0, {0, 0x6889, 0xD113, 0x6768, 0x58F5, 0xD25B, 0x214D}},
    {1,
     0,
     1,
     0xCB6DAD5D,
     {0x75EA, 0x434E, 0xA9C1, 0x6465, 0xDF65, 0x227A, 0x249E}},
    // The stream of fc.weight.exp_avg_sq.
    {42,
     0x2051607F,
     1,
     0x7CA66813,
     {0x2C48, 0xFFDE, 0x27FF, 0xADA9, 0xB62B, 0x370F, 0x86AC}},
    {42,
     0x2051607F,
     2,
     0xABDB8F37,
     {0xB067, 0x8CAF, 0x2F5D, 0x26A5, 0x3B03, 0x50D3, 0xFF66}},
    {0x123456789ABCDEF0,
     0xDEADBEEF,
     3,
     0x3C85B79D,
     {0x27D0, 0x4EBE, 0x8592, 0xAF76, 0xFBC1, 0x877D, 0x8689}},
    {0x7FFFFFFFFFFFFFFF,
     0xFFFFFFFF,
     0x100000005,
     0x54FF5C4A,
     {0x2936, 0xBAFE, 0xF30F, 0xBF8D, 0xA47D, 0x4754, 0x82CD}}};

uint32_t DrawOf(uint32_t key, int64_t place) {
  return DrawAt(DrawKeyOf(key, place), static_cast<uint32_t>(place));
}

TEST(Draws, AreKnownNumbers) {
  constexpr int64_t kFar = int64_t{1} << 32;
  constexpr int64_t kPlaces[] = {0,    1,        2,           kFar - 1,
                                 kFar, kFar + 1, 5 * kFar + 7};
  for (const KnownDraws& known : kKnown) {
    const uint32_t key = DrawKey(known.seed, known.stream, known.update);
    EXPECT_EQ(key, known.key);
    for (size_t i = 0; i < std::size(kPlaces); ++i) {
      EXPECT_EQ(DrawOf(key, kPlaces[i]), known.draws[i]) << kPlaces[i];
    }
  }
}

// One of the numbers that a draw depends on moves, the others stay.
std::vector<std::vector<uint32_t>> SeriesOfDraws() {
  constexpr int64_t kCount = 1 << 14, kFar = int64_t{5} << 32;
  std::vector<std::vector<uint32_t>> series(6);
  const uint32_t key = DrawKey(7, 11, 3);
  for (int64_t i = 0; i < kCount; ++i) {
    const auto stream = static_cast<uint32_t>(i);
    series[0].push_back(DrawOf(key, i));
    series[1].push_back(DrawOf(key, kFar - kCount / 2 + i));
    series[2].push_back(DrawOf(key, (i << 31) + 9));
    series[3].push_back(DrawOf(DrawKey(7, 11, i + 1), 9));
    series[4].push_back(DrawOf(DrawKey(i, 11, 3), 9));
    series[5].push_back(DrawOf(DrawKey(7, stream, 3), 9));
  }
  return series;
}

// How many standard errors a count of n draws of that chance is off.
double ErrorsOff(int64_t count, int64_t n, double chance) {
  const auto of = static_cast<double>(n);
  return std::fabs(static_cast<double>(count) - of * chance) /
         std::sqrt(of * chance * (1 - chance));
}

TEST(Draws, AreUniformAndNeighborsIndependent) {
  const auto all = SeriesOfDraws();
  for (size_t k = 0; k < all.size(); ++k) {
    const std::vector<uint32_t>& draws = all[k];
    const auto n = static_cast<int64_t>(draws.size());
    std::vector<int64_t> buckets(256);
    int64_t both = 0;
    for (size_t i = 0; i < draws.size(); ++i) {
      ASSERT_LT(draws[i], 1u << 16);
      ++buckets[draws[i] >> 8];
      both += i > 0 && draws[i] >> 15 && draws[i - 1] >> 15;
    }
    double squares = 0;
    for (int64_t count : buckets) {
      const double off = static_cast<double>(count) - 64;
      squares += off * off / 64;
    }
    // Chi squared of 255 degrees of freedom.
    EXPECT_LT(std::fabs(squares - 255), 4 * std::sqrt(2 * 255.0)) << k;
    EXPECT_LT(ErrorsOff(both, n - 1, 0.25), 4) << k;
  }
}

// The mean of many draws is the number: it is rounded up as often as its
// distance to the number below says.
TEST(RoundBFloat16, RoundsUpInProportion) {
  const auto all = SeriesOfDraws();
  for (uint32_t low : {0x0100u, 0x4000u, 0x8000u, 0xFF00u}) {
    for (uint32_t upper : {0x3F80u, 0xBF80u, 0x0001u, 0x7F00u}) {
      for (size_t k = 0; k < all.size(); ++k) {
        int64_t up = 0;
        for (uint32_t draw : all[k]) {
          const uint32_t y = RoundBFloat16(upper << 16 | low, draw);
          ASSERT_LE(y - upper, 1u);
          up += y != upper;
        }
        EXPECT_LT(
            ErrorsOff(up, static_cast<int64_t>(all[k].size()), low / 65536.0),
            4)
            << k << " " << low;
      }
    }
  }
}

TEST(RoundBFloat16, TakesOneOfTheTwoNeighborsOfEachNumber) {
  constexpr uint32_t kInfinity = 0x7F80, kLargest = 0x7F7F;
  for (uint32_t upper = 0; upper < 1 << 16; ++upper) {
    const uint32_t magnitude = upper & 0x7FFF;
    for (uint32_t low : {0u, 1u, 0x7FFFu, 0x8000u, 0xFFFFu}) {
      for (uint32_t draw : {0u, 1u, 0x7FFFu, 0x8000u, 0xFFFFu}) {
        const uint32_t y = RoundBFloat16(upper << 16 | low, draw);
        if (magnitude > kInfinity || (magnitude == kInfinity && low > 0)) {
          ASSERT_GT(y & 0x7FFF, kInfinity) << upper << " " << low;
          ASSERT_EQ(y >> 15, upper >> 15) << upper << " " << low;
          continue;
        }
        const bool away = low + draw >= 1 << 16 && magnitude < kLargest;
        ASSERT_EQ(y, upper + away) << upper << " " << low << " " << draw;
      }
    }
  }
}

TEST(ElementPlaces, AreThoseOfRunsInTheWhole) {
  EXPECT_EQ(ElementPlaces{}.Of(0), 0);
  EXPECT_EQ(ElementPlaces{}.Of(int64_t{1} << 40), int64_t{1} << 40);
  // Runs of 3 of 10 elements, from the fifth on; the part begins with the
  // second element of the second run.
  const ElementPlaces places{.shift = 4, .run = 3, .stride = 10, .begin = 5};
  const int64_t expected[] = {16, 17, 25, 26, 27, 35};
  for (int64_t i = 0; i < 6; ++i) EXPECT_EQ(places.Of(i), expected[i]);
}

}  // namespace
}  // namespace onnx_fp8
