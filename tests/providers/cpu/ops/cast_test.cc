// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <vector>

#include "base/check.h"
#include "onnx_fp8/float8.h"
#include "tests/providers/cpu/run_node.h"
#include "tests/providers/cpu/special_values.h"

namespace onnx_fp8 {
namespace {

Tensor Cast(const Tensor& x, DType to, int64_t saturate = 1) {
  return RunNode("Cast", {x},
                 {{"to", static_cast<int64_t>(to)}, {"saturate", saturate}})[0];
}

const DType kDTypes[] = {
    DType::kFloat,  DType::kDouble, DType::kFloat16, DType::kBFloat16,
    DType::kE4M3,   DType::kE5M2,   DType::kBool,    DType::kInt8,
    DType::kInt16,  DType::kInt32,  DType::kInt64,   DType::kUInt8,
    DType::kUInt16, DType::kUInt32, DType::kUInt64,  DType::kE8M0};

TEST(Cast, EveryPairKeepsSmallNumbers) {
  // Powers of two that all dtypes (bool apart) hold.
  Tensor x = Vector<float>({1, 2, 4, 8, 16, 64});
  for (DType from : kDTypes) {
    for (DType to : kDTypes) {
      bool any_bool = from == DType::kBool || to == DType::kBool;
      Tensor want = any_bool ? Vector<float>({1, 1, 1, 1, 1, 1}) : x;
      Tensor y = Cast(ConvertTo(x, from), to);
      ASSERT_EQ(y.dtype(), to);
      for (int64_t i = 0; i < x.size(); ++i) {
        ASSERT_EQ(DoubleAt(y, i), DoubleAt(want, i))
            << Name(from) << " to " << Name(to);
      }
    }
  }
}

TEST(Cast, SmallFloatsRoundAsTheirEncodersDo) {
  Tensor x = RandomNormal({5000}, 7);  // more than one block
  const float special[] = {kNaN, -kNaN, kInfinity, -kInfinity, 3e38f, -0.0f};
  std::copy(std::begin(special), std::end(special), x.data<float>());
  for (DType to :
       {DType::kFloat16, DType::kBFloat16, DType::kE4M3, DType::kE5M2}) {
    Tensor y = Cast(x, to);
    EXPECT_TRUE(Identical(y, ConvertTo(x, to))) << Name(to);
    Tensor back = Cast(y, DType::kFloat);
    Tensor want = ConvertTo(y, DType::kFloat);
    for (int64_t i = 0; i < x.size(); ++i) {
      if (std::isnan(DoubleAt(want, i))) {
        ASSERT_TRUE(std::isnan(DoubleAt(back, i)));
      } else {
        ASSERT_EQ(DoubleAt(back, i), DoubleAt(want, i)) << Name(to);
      }
    }
  }
}

TEST(Cast, DoublesAreRoundedOnce) {
  // Just above the middle between 1 and the next value. As a float it is the
  // middle itself, which would round to even, down.
  Tensor x = Vector<double>({1 + 0x1p-11 + 0x1p-40, 1 + 0x1p-8 + 0x1p-40,
                             -(1 + 0x1p-11 + 0x1p-40), 1 + 0x1p-11});
  Tensor half = ConvertTo(Cast(x, DType::kFloat16), DType::kDouble);
  EXPECT_EQ(DoubleAt(half, 0), 1 + 0x1p-10);
  EXPECT_EQ(DoubleAt(half, 2), -(1 + 0x1p-10));
  EXPECT_EQ(DoubleAt(half, 3), 1);
  Tensor brain = ConvertTo(Cast(x, DType::kBFloat16), DType::kDouble);
  EXPECT_EQ(DoubleAt(brain, 1), 1 + 0x1p-7);
  Tensor special = Vector<double>({kNaN, -kInfinity, 1e300, 1e-300});
  Tensor y = ConvertTo(Cast(special, DType::kFloat16), DType::kDouble);
  EXPECT_TRUE(std::isnan(DoubleAt(y, 0)));
  EXPECT_EQ(DoubleAt(y, 1), -kInfinity);
  EXPECT_EQ(DoubleAt(y, 2), kInfinity);
  EXPECT_EQ(DoubleAt(y, 3), 0);
}

// The tables in the description of ONNX's Cast.
TEST(Cast, SaturateDecidesWhatLiesOutside) {
  Tensor x = Vector<float>({448, 464, 465, -1e6f, kInfinity, -kInfinity, kNaN});
  Tensor y = Cast(x, DType::kE4M3);
  const uint8_t saturated[] = {0x7E, 0x7E, 0x7E, 0xFE, 0x7E, 0xFE, 0x7F};
  const uint8_t free[] = {0x7E, 0x7E, 0x7F, 0xFF, 0x7F, 0xFF, 0x7F};
  Tensor z = Cast(x, DType::kE4M3, 0);
  for (int64_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(y.data<E4M3>()[i].bits, saturated[i]) << i;
    EXPECT_EQ(z.data<E4M3>()[i].bits, free[i]) << i;
  }
  x = Vector<float>({57344, 61439, 61440, -1e6f, kInfinity, -kInfinity, kNaN});
  y = Cast(x, DType::kE5M2);
  z = Cast(x, DType::kE5M2, 0);
  const uint8_t saturated2[] = {0x7B, 0x7B, 0x7B, 0xFB, 0x7B, 0xFB};
  const uint8_t free2[] = {0x7B, 0x7B, 0x7C, 0xFC, 0x7C, 0xFC};
  for (int64_t i = 0; i < 6; ++i) {
    EXPECT_EQ(y.data<E5M2>()[i].bits, saturated2[i]) << i;
    EXPECT_EQ(z.data<E5M2>()[i].bits, free2[i]) << i;
  }
  EXPECT_TRUE(std::isnan(Decode(z.data<E5M2>()[6])));
  Tensor e = Cast(Vector<float>({0, 3, kInfinity, kNaN}), DType::kE8M0);
  const uint8_t scales[] = {0, 129, 254, 255};
  for (int64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(e.data<E8M0>()[i].bits, scales[i]) << i;
  }
}

TEST(Cast, FloatsToIntegersTruncateAndSaturate) {
  Tensor x = Vector<float>({-3.7f, 3.7f, 1e20f, -1e20f, kNaN});
  EXPECT_EQ(ToInts(Cast(x, DType::kInt32)),
            (std::vector<int64_t>{-3, 3, 2147483647, -2147483648ll, 0}));
  EXPECT_EQ(ToInts(Cast(x, DType::kUInt8)),
            (std::vector<int64_t>{0, 3, 255, 0, 0}));
  EXPECT_EQ(ToInts(Cast(x, DType::kBool)),
            (std::vector<int64_t>{1, 1, 1, 1, 1}));
  EXPECT_EQ(ToInts(Cast(Vector<float>({0, -0.0f, 0.1f}), DType::kBool)),
            (std::vector<int64_t>{0, 0, 1}));
}

TEST(Cast, IntegersWrap) {
  Tensor x = Vector<int16_t>({200, -1});
  EXPECT_EQ(ToInts(Cast(x, DType::kInt8)), (std::vector<int64_t>{-56, -1}));
  EXPECT_EQ(ToInts(Cast(x, DType::kUInt16)),
            (std::vector<int64_t>{200, 65535}));
  int64_t big = (int64_t{1} << 62) + 1;
  EXPECT_EQ(ToInts(Cast(Vector<int64_t>({big}), DType::kUInt64)),
            (std::vector<int64_t>{big}));
}

TEST(Cast, LikeAndErrors) {
  Tensor x = Vector<float>({1.5f});
  Tensor y = RunNode("CastLike", {x, Tensor::Scalar(int64_t{7})})[0];
  EXPECT_TRUE(Identical(y, Tensor::Ints({1})));
  EXPECT_TRUE(Identical(Cast(x, DType::kFloat), x));
  EXPECT_THROW(Cast(x, DType::kString), Error);
  EXPECT_THROW(Cast(x, static_cast<DType>(99)), Error);
  EXPECT_THROW(Cast(x, DType::kE8M0, 0), Error);
  EXPECT_THROW(RunNode("CastLike", {x}), Error);
}

}  // namespace
}  // namespace onnx_fp8
