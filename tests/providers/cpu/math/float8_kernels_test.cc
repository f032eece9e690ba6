// SPDX-License-Identifier: Apache-2.0
#include "providers/cpu/math/float8_kernels.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/parallel.h"
#include "base/random.h"
#include "onnx_fp8/float8.h"
#include "providers/cpu/math/narrow_floats.h"
#include "tests/onnx_fp8/float8_tables.h"
#include "tests/providers/cpu/isas.h"

namespace onnx_fp8 {
namespace {

// Every bf16 value, every rounding midpoint with its neighbors, and random fp32
// bit patterns: most of them in the formats' range, some of any size.
StoredFloats Floats(const std::vector<float>& x, int64_t n) {
  return {DType::kFloat, x.data(), n};
}

std::vector<float> ManyFloats() {
  std::vector<float> x;
  for (uint32_t i = 0; i < 65536; ++i) {
    x.push_back(std::bit_cast<float>(i << 16));
  }
  for (DType format : {DType::kE4M3, DType::kE5M2}) {
    Float8Table table = ReadFloat8Table(format);
    x.insert(x.end(), table.near.begin(), table.near.end());
  }
  for (uint64_t i = 0; i < 500'000; ++i) {
    auto bits = static_cast<uint32_t>(RandomBits(1, i));
    float any = std::bit_cast<float>(bits);
    uint32_t exponent = 127 - 18 + bits % 40;
    uint32_t near = (bits & 0x807FFFFF) | exponent << 23;
    x.push_back(i % 4 == 0 ? any : std::bit_cast<float>(near));
  }
  return x;
}

TEST(Float8Kernels, WidenEveryCodeAtEveryLength) {
  for (Isa isa : RunnableIsas()) {
    const Float8Kernels& kernels = KernelsFor(isa);
    for (int64_t n : {0, 1, 7, 31, 64, 100, 256}) {
      std::vector<uint8_t> codes(256);
      for (size_t i = 0; i < 256; ++i) {
        codes[i] = static_cast<uint8_t>(i * 37 + static_cast<size_t>(n));
      }
      for (bool e4m3 : {true, false}) {
        std::vector<float> x(256);
        std::vector<uint16_t> wide(257, 0x1234);
        (e4m3 ? kernels.decode_e4m3 : kernels.decode_e5m2)(codes.data(),
                                                           x.data(), n);
        (e4m3 ? kernels.widen_e4m3 : kernels.widen_e5m2)(codes.data(),
                                                         wide.data(), n);
        for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
          ASSERT_EQ(wide[i] << 16, std::bit_cast<int32_t>(x[i]));
        }
        EXPECT_EQ(wide[static_cast<size_t>(n)], 0x1234);
      }
    }
  }
}

TEST(Float8Kernels, DecodeEveryCodeAtEveryLength) {
  for (Isa isa : RunnableIsas()) {
    const Float8Kernels& kernels = KernelsFor(isa);
    for (size_t n : {0, 1, 7, 31, 64, 100, 256}) {
      std::vector<uint8_t> codes(256);
      for (size_t i = 0; i < 256; ++i) {
        codes[i] = static_cast<uint8_t>(i * 37 + n);  // odd: all codes
      }
      std::vector<float> a(257, -1.0f), b(257, -1.0f);
      kernels.decode_e4m3(codes.data(), a.data(), static_cast<int64_t>(n));
      kernels.decode_e5m2(codes.data(), b.data(), static_cast<int64_t>(n));
      for (size_t i = 0; i < n; ++i) {
        auto bits = [](float x) { return std::bit_cast<uint32_t>(x); };
        float x = Decode(E4M3{codes[i]}), y = Decode(E5M2{codes[i]});
        EXPECT_TRUE(std::isnan(x) ? std::isnan(a[i]) : bits(x) == bits(a[i]));
        EXPECT_TRUE(std::isnan(y) ? std::isnan(b[i]) : bits(y) == bits(b[i]));
      }
      EXPECT_EQ(a[n], -1.0f);
      EXPECT_EQ(b[n], -1.0f);
    }
  }
}

TEST(Float8Kernels, DecodeBFloat16) {
  std::vector<uint16_t> q(65536);
  for (size_t i = 0; i < q.size(); ++i) q[i] = static_cast<uint16_t>(i);
  for (Isa isa : RunnableIsas()) {
    std::vector<float> x(q.size());
    WithIsa with(isa);
    WidenFloats(DType::kBFloat16, q.data(), x.data(), 65536);
    for (uint32_t i = 0; i < 65536; ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(x[i]), i << 16);
    }
  }
}

TEST(Float8Kernels, EncodeEqualsTheScalarCast) {
  std::vector<float> x = ManyFloats();
  auto n = static_cast<int64_t>(x.size());
  for (Isa isa : RunnableIsas()) {
    for (float factor : {1.0f, 0.7f, 448.0f}) {
      std::vector<uint8_t> a(x.size()), b(x.size());
      KernelsFor(isa).encode_e4m3(x.data(), factor, a.data(), n);
      KernelsFor(isa).encode_e5m2(x.data(), factor, b.data(), n);
      size_t wrong = 0;
      for (size_t i = 0; i < x.size(); ++i) {
        float y = x[i] * factor;
        wrong += a[i] != EncodeE4M3(y).bits || b[i] != EncodeE5M2(y).bits;
      }
      EXPECT_EQ(wrong, 0u) << static_cast<int>(isa) << " " << factor;
    }
  }
}

TEST(Float8Kernels, EncodeWritesExactlyItsElements) {
  std::vector<float> x(200, 1.0f);
  for (Isa isa : RunnableIsas()) {
    for (size_t n = 0; n < 150; ++n) {
      std::vector<uint8_t> q(200, 0xAA);
      KernelsFor(isa).encode_e4m3(x.data(), 1.0f, q.data(),
                                  static_cast<int64_t>(n));
      std::vector<uint8_t> expected(200, 0xAA);
      std::fill_n(expected.begin(), n, 0x38);
      EXPECT_EQ(q, expected);
    }
  }
}

TEST(Float8Kernels, AmaxFindsTheLargestFiniteAndFlagsTheRest) {
  float inf = std::numeric_limits<float>::infinity();
  float nan = std::numeric_limits<float>::quiet_NaN();
  for (Isa isa : RunnableIsas()) {
    auto amax = KernelsFor(isa).amax;
    for (size_t n : {1, 5, 16, 33, 100}) {
      std::vector<float> x(n);
      for (size_t at = 0; at < n; ++at) {
        std::fill(x.begin(), x.end(), 0.5f);
        x[at] = -3.0f;
        Amax r = amax(x.data(), static_cast<int64_t>(n));
        EXPECT_EQ(r.finite, 3.0f);
        EXPECT_FALSE(r.non_finite);
        for (float bad : {inf, -inf, nan, -nan}) {
          x[at] = bad;
          r = amax(x.data(), static_cast<int64_t>(n));
          EXPECT_EQ(r.finite, n == 1 ? 0.0f : 0.5f);
          EXPECT_TRUE(r.non_finite);
        }
      }
    }
    EXPECT_EQ(amax(nullptr, 0).finite, 0.0f);
    float tiny = 1e-45f;
    EXPECT_EQ(amax(&tiny, 1).finite, tiny);
  }
}

// The part of the last thread must not replace the parts of the others.
TEST(Float8Kernels, EncodingAndMeasuringAtOnceIsBoth) {
  for (int64_t n : {0, 1, 4097, 100003}) {
    for (DType dtype : {DType::kE4M3, DType::kE5M2}) {
      std::vector<float> x(static_cast<size_t>(n));
      for (size_t i = 0; i < x.size(); ++i) {
        x[i] = static_cast<float>(i) * (i % 2 ? -0.01f : 0.01f);
      }
      std::vector<uint8_t> expected(x.size()), got(x.size());
      EncodeTo(dtype, Floats(x, n), 3, expected.data());
      Amax all = AmaxOf(Floats(x, n));
      Amax amax = EncodeAndMeasure(dtype, Floats(x, n), 3, got.data());
      EXPECT_EQ(got, expected);
      EXPECT_EQ(amax.finite, all.finite);
      EXPECT_FALSE(amax.non_finite);
      if (n == 0) continue;
      x.back() = INFINITY;
      EXPECT_TRUE(
          EncodeAndMeasure(dtype, Floats(x, n), 3, got.data()).non_finite);
    }
  }
}

TEST(Float8Kernels, TheLargestOfAllThreadsCounts) {
  constexpr size_t kSize = 200'000;
  int threads = NumThreads();
  SetNumThreads(2);
  for (int run = 0; run < 200; ++run) {
    std::vector<float> x(kSize, 0.25f);
    x[run % 2 == 0 ? 5 : kSize - 5] = -7.0f;
    ASSERT_EQ(AmaxOf(Floats(x, kSize)).finite, 7.0f);
  }
  SetNumThreads(threads);
}

TEST(Float8Kernels, ThreadsTogetherSeeEverything) {
  constexpr int64_t kSize = 100'000;
  std::vector<float> x(kSize, 0.25f);
  x[1] = -7.0f;
  x[kSize - 1] = std::numeric_limits<float>::quiet_NaN();
  Amax amax = AmaxOf(Floats(x, kSize));
  EXPECT_EQ(amax.finite, 7.0f);
  EXPECT_TRUE(amax.non_finite);
  std::vector<uint8_t> q(kSize);
  EncodeTo(DType::kE5M2, Floats(x, kSize), 1.0f, q.data());
  std::vector<float> y(kSize);
  DecodeTo(DType::kE5M2, q.data(), y.data(), kSize);
  for (size_t i = 0; i + 1 < x.size(); ++i) ASSERT_EQ(x[i], y[i]);
  EXPECT_TRUE(std::isnan(y.back()));
}

}  // namespace
}  // namespace onnx_fp8
