// SPDX-License-Identifier: Apache-2.0
#include "onnx_fp8/tensor_range.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "onnx_fp8/float8.h"

namespace onnx_fp8 {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
const float kNaN = std::nanf("");

Tensor Floats(std::vector<float> values) {
  return Tensor::From<float>({std::ssize(values)}, values);
}

TEST(TensorRange, LeavesOutWhatIsNotFinite) {
  const TensorRange range = RangeOf(Floats({-2, kInf, 7, kNaN, -9, -kInf}));
  EXPECT_EQ(range.min, -9);
  EXPECT_EQ(range.max, 7);
  EXPECT_EQ(range.amax, 9);
  EXPECT_EQ(range.nans, 1);
  EXPECT_EQ(range.infinite, 2);
  EXPECT_EQ(range.first, 1);
  EXPECT_FALSE(range.finite());
}

TEST(TensorRange, OfNumbersOfOneSign) {
  EXPECT_EQ(RangeOf(Floats({3, 2})).min, 2);
  EXPECT_EQ(RangeOf(Floats({-3, -2})).max, -2);
  EXPECT_EQ(RangeOf(Floats({})).amax, 0);
  EXPECT_EQ(RangeOf(Floats({kNaN})).amax, 0);
  EXPECT_TRUE(RangeOf(Floats({0})).finite());
}

TEST(TensorRange, OfOtherFloats) {
  const std::vector<E4M3> codes = {EncodeE4M3(-448), {0x7f}, EncodeE4M3(1)};
  const TensorRange eight = RangeOf(Tensor::From<E4M3>({3}, codes));
  EXPECT_EQ(eight.amax, 448);
  EXPECT_EQ(eight.nans, 1);
  const std::vector<Float16> halves = {EncodeFloat16(7e4f), EncodeFloat16(3)};
  EXPECT_EQ(RangeOf(Tensor::From<Float16>({2}, halves)).infinite, 1);
  const std::vector<BFloat16> others = {EncodeBFloat16(3),
                                        EncodeBFloat16(kNaN)};
  EXPECT_EQ(FirstNotFinite(Tensor::From<BFloat16>({2}, others)), 1);
  EXPECT_EQ(RangeOf(Tensor::From<double>({1}, std::vector{1e300})).max, 1e300);
  EXPECT_TRUE(MayBeNotFinite(DType::kE5M2));
  EXPECT_FALSE(MayBeNotFinite(DType::kInt32));
  EXPECT_FALSE(MayBeNotFinite(DType::kE8M0));
}

// Each pattern of 16 bits, alone among eight.
template <typename T>
void ExpectAllPatterns() {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    std::vector<T> values(8, T{0x3c00});
    values[bits % 8].bits = static_cast<uint16_t>(bits);
    const bool finite = std::isfinite(Decode(values[bits % 8]));
    ASSERT_EQ(FirstNotFinite(Tensor::From<T>({8}, values)),
              finite ? -1 : static_cast<int64_t>(bits % 8))
        << bits;
  }
}

TEST(FirstNotFinite, KnowsAllHalves) {
  ExpectAllPatterns<Float16>();
  ExpectAllPatterns<BFloat16>();
}

TEST(FirstNotFinite, KnowsTheEndsOfWideFloats) {
  for (double number :
       {1.7e308, -1.7e308, 5e-324, double{kInf}, -double{kInf}, double{kNaN}}) {
    const std::vector<double> wide = {1, number};
    EXPECT_EQ(FirstNotFinite(Tensor::From<double>({2}, wide)),
              std::isfinite(number) ? -1 : 1)
        << number;
    const auto narrow = static_cast<float>(number);
    EXPECT_EQ(FirstNotFinite(Floats({3.4e38f, narrow, -3.4e38f, 1e-45f})),
              std::isfinite(narrow) ? -1 : 1)
        << number;
  }
}

TEST(FirstNotFinite, IsThePlaceInAnyBlock) {
  for (size_t at : {0, 1, 1023, 1024, 2047, 2048, 3000}) {
    std::vector<float> values(3001, 1.0f);
    EXPECT_EQ(FirstNotFinite(Floats(values)), -1);
    values[at] = kNaN;
    values.back() = kInf;
    EXPECT_EQ(FirstNotFinite(Floats(values)), static_cast<int64_t>(at));
  }
}

}  // namespace
}  // namespace onnx_fp8
