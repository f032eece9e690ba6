// SPDX-License-Identifier: Apache-2.0
#include "onnx_fp8/tensor.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/check.h"

namespace onnx_fp8 {
namespace {

TEST(Tensor, CopiesShareBytesAndClonesDoNot) {
  Tensor a = Tensor::From<float>({2, 2}, std::vector<float>{1, 2, 3, 4});
  Tensor b = a;
  Tensor c = a.Clone();
  a.data<float>()[0] = 9;
  EXPECT_EQ(b.data<float>()[0], 9);
  EXPECT_EQ(c.data<float>()[0], 1);
  EXPECT_EQ(a.Reshaped({4}).dim(-1), 4);
  EXPECT_THROW(a.Reshaped({3}), Error);
}

TEST(Tensor, ConvertSaturatesWhereCIsUndefined) {
  Tensor x = Tensor::From<float>(
      {4}, std::vector<float>{-3.7f, 1e20f, -1e20f,
                              std::numeric_limits<float>::quiet_NaN()});
  Tensor y = ConvertTo(x, DType::kInt32);
  EXPECT_EQ(ToInts(y),
            (std::vector<int64_t>{-3, std::numeric_limits<int32_t>::max(),
                                  std::numeric_limits<int32_t>::min(), 0}));
}

TEST(Tensor, RefusesSizesThatOverflow) {
  EXPECT_THROW(Tensor::Allocate(DType::kFloat, {1L << 40, 1L << 40}), Error);
  EXPECT_THROW(Tensor::Allocate(DType::kString, {1}), Error);
}

TEST(Shape, BroadcastAndAxes) {
  EXPECT_EQ(BroadcastShapes({2, 1, 3}, {4, 1}, "n"), (Shape{2, 4, 3}));
  EXPECT_EQ(BroadcastShapes({}, {0}, "n"), (Shape{0}));
  EXPECT_THROW(BroadcastShapes({2}, {3}, "n"), Error);
  EXPECT_EQ(NormalizeAxis(-1, 3, "n"), 2);
  EXPECT_THROW(NormalizeAxis(3, 3, "n"), Error);
}

TEST(Tensor, ZerosAreZeroAndAligned) {
  // Small tensors may get memory that was used before, large ones do not.
  for (int64_t n : {0, 1, 3, 1000, 3'000'000}) {
    { Tensor used = Tensor::Allocate(DType::kUInt8, {n}); }
    Tensor t = Tensor::Zeros(DType::kUInt8, {n});
    EXPECT_EQ(reinterpret_cast<uintptr_t>(t.raw()) % 64, 0u) << n;
    int64_t sum = 0;
    for (uint8_t x : t.values<uint8_t>()) sum += x;
    EXPECT_EQ(sum, 0) << n;
    for (int64_t i = 0; i < n; ++i) t.data<uint8_t>()[i] = 1;
  }
}

TEST(Tensor, ATypeAloneHasNoBytes) {
  Tensor t = Tensor::OfType(DType::kFloat, {2, 3});
  EXPECT_TRUE(t.defined());
  EXPECT_EQ(t.size(), 6);
  EXPECT_EQ(t.raw(), nullptr);
  EXPECT_THROW(Tensor::OfType(DType::kString, {2}), Error);
}

}  // namespace
}  // namespace onnx_fp8
