// SPDX-License-Identifier: Apache-2.0
#include "onnx_fp8/float8.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "tests/onnx_fp8/float8_tables.h"

namespace onnx_fp8 {
namespace {

float DecodeAs(DType format, uint8_t code) {
  return format == DType::kE4M3 ? Decode(E4M3{code}) : Decode(E5M2{code});
}

uint8_t EncodeAs(DType format, float x) {
  return format == DType::kE4M3 ? EncodeE4M3(x).bits : EncodeE5M2(x).bits;
}

float BFloat16Value(uint32_t bits) { return std::bit_cast<float>(bits << 16); }

class Float8 : public testing::TestWithParam<DType> {};

TEST_P(Float8, DecodesEveryCodeAsMlDtypesDoes) {
  Float8Table table = ReadFloat8Table(GetParam());
  for (int code = 0; code < 256; ++code) {
    float x = DecodeAs(GetParam(), static_cast<uint8_t>(code));
    float expected = table.values[static_cast<size_t>(code)];
    EXPECT_EQ(std::isnan(x), IsNaNCode(GetParam(), static_cast<uint8_t>(code)));
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(x)) << code;
    } else {
      EXPECT_EQ(std::bit_cast<uint32_t>(x), std::bit_cast<uint32_t>(expected))
          << code;
    }
  }
}

TEST_P(Float8, EncodesEveryBFloat16AsMlDtypesDoes) {
  Float8Table table = ReadFloat8Table(GetParam());
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    uint8_t code = EncodeAs(GetParam(), BFloat16Value(bits));
    uint8_t expected = table.of_bf16[bits];
    if (IsNaNCode(GetParam(), expected)) {
      // Any payload will do, but the sign of the NaN must be kept.
      EXPECT_TRUE(IsNaNCode(GetParam(), code)) << bits;
      EXPECT_EQ(code >> 7, bits >> 15);
    } else {
      EXPECT_EQ(code, expected) << bits;
    }
  }
}

TEST_P(Float8, RoundsMidpointsToEven) {
  Float8Table table = ReadFloat8Table(GetParam());
  // 2 signs, 3 values, a midpoint between any two of the finite codes.
  size_t finite = GetParam() == DType::kE4M3 ? 127 : 124;
  ASSERT_EQ(table.near.size(), 6 * (finite - 1));
  for (size_t i = 0; i < table.near.size(); ++i) {
    EXPECT_EQ(EncodeAs(GetParam(), table.near[i]), table.of_near[i])
        << table.near[i];
  }
}

TEST_P(Float8, SaturatesAndKeepsNaN) {
  float largest = Float8Max(GetParam());
  float inf = std::numeric_limits<float>::infinity();
  uint8_t code = EncodeAs(GetParam(), largest);
  EXPECT_EQ(DecodeAs(GetParam(), code), largest);
  for (float x : {largest * 1.5f, 3e38f, inf}) {
    EXPECT_EQ(EncodeAs(GetParam(), x), code);
    EXPECT_EQ(EncodeAs(GetParam(), -x), code | 0x80);
  }
  float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(DecodeAs(GetParam(), EncodeAs(GetParam(), nan))));
  EXPECT_THROW(Float8Max(DType::kFloat), Error);
}

INSTANTIATE_TEST_SUITE_P(Formats, Float8,
                         testing::Values(DType::kE4M3, DType::kE5M2),
                         [](const auto& info) {
                           return info.param == DType::kE4M3 ? "E4M3" : "E5M2";
                         });

TEST(BFloat16, RoundTripsAndRoundsToEven) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    float x = BFloat16Value(bits);
    BFloat16 y = EncodeBFloat16(x);
    if (std::isnan(x)) {
      EXPECT_TRUE(std::isnan(Decode(y)));
    } else {
      ASSERT_EQ(y.bits, bits);
      ASSERT_EQ(std::bit_cast<uint32_t>(Decode(y)), bits << 16);
    }
  }
  // 1 + 2^-8 lies between 1 and 1 + 2^-7.
  EXPECT_EQ(Decode(EncodeBFloat16(1 + 0x1p-8f)), 1.0f);
  EXPECT_EQ(Decode(EncodeBFloat16(1 + 3 * 0x1p-8f)), 1 + 0x1p-6f);
  EXPECT_TRUE(std::isinf(Decode(EncodeBFloat16(3.4028e38f))));
}

TEST(Float16, RoundTripsEveryCode) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    float x = Decode(Float16{static_cast<uint16_t>(bits)});
    if (std::isnan(x)) {
      EXPECT_TRUE(std::isnan(Decode(EncodeFloat16(x))));
    } else {
      ASSERT_EQ(EncodeFloat16(x).bits, bits);
    }
  }
  EXPECT_EQ(EncodeFloat16(65519.996f).bits, 0x7BFF);
  EXPECT_EQ(EncodeFloat16(65520.0f).bits, 0x7C00);
  EXPECT_EQ(EncodeFloat16(0x1p-25f).bits, 0);
  EXPECT_EQ(EncodeFloat16(3 * 0x1p-25f).bits, 2);
  EXPECT_EQ(Decode(Float16{0x3555}), 0.333251953125f);
}

TEST(E8M0, RoundsUpToPowersOfTwo) {
  for (int code = 0; code < 255; ++code) {
    E8M0 e = {static_cast<uint8_t>(code)};
    float x = Decode(e);
    EXPECT_EQ(x, std::ldexp(1.0f, code - 127));
    EXPECT_EQ(EncodeE8M0(x).bits, code);
    float above = std::nextafter(x, std::numeric_limits<float>::infinity());
    EXPECT_EQ(EncodeE8M0(above).bits, code + 1);
  }
  EXPECT_TRUE(std::isnan(Decode(E8M0{255})));
  EXPECT_EQ(EncodeE8M0(-1.0f).bits, 255);
  EXPECT_EQ(EncodeE8M0(std::numeric_limits<float>::infinity()).bits, 255);
}

}  // namespace
}  // namespace onnx_fp8
