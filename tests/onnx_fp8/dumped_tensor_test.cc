// SPDX-License-Identifier: Apache-2.0
#include "onnx_fp8/dumped_tensor.h"

#include <gtest/gtest.h>

#include "base/check.h"

namespace onnx_fp8 {
namespace {

// Codes 1 to 6 of e4m3, whose bits are known: 1 is 0x38, and so on.
Tensor Codes(const Shape& shape) {
  const std::vector<E4M3> codes = {{0x38}, {0x40}, {0x44},
                                   {0x48}, {0x4A}, {0x4C}};
  return Tensor::From<E4M3>(shape, codes);
}

std::vector<float> Numbers(const Tensor& x) {
  return {x.values<float>().begin(), x.values<float>().end()};
}

TEST(DumpedTensor, OneScaleDecodesAll) {
  DumpedTensor x{.codes = Codes({2, 3}), .scale = Tensor::Scalar(0.5f)};
  const Tensor real = Decoded(x);
  EXPECT_EQ(real.shape(), (Shape{2, 3}));
  EXPECT_EQ(Numbers(real), (std::vector<float>{0.5, 1, 1.5, 2, 2.5, 3}));
}

TEST(DumpedTensor, BlocksMayEndWithTheMatrix) {
  DumpedTensor x{.block_rows = 1,
                 .block_columns = 2,
                 .codes = Codes({1, 2, 3}),
                 .scale = Tensor::From<float>({2, 2}, {1, 10, 100, 1000})};
  EXPECT_EQ(Numbers(Decoded(x)),
            (std::vector<float>{1, 2, 30, 400, 500, 6000}));
  // 0: the whole axis.
  x.block_rows = 0;
  x.block_columns = 1;
  x.scale = Tensor::From<float>({1, 3}, {1, 10, 100});
  EXPECT_EQ(Numbers(Decoded(x)), (std::vector<float>{1, 20, 300, 4, 50, 600}));
}

TEST(DumpedTensor, ScalesMayBePowersOfTwo) {
  DumpedTensor x{.block_rows = 1,
                 .codes = Codes({2, 3}),
                 .scale = Tensor::From<E8M0>({2, 1}, {{126}, {128}})};
  EXPECT_EQ(Numbers(Decoded(x)), (std::vector<float>{0.5, 1, 1.5, 8, 10, 12}));
}

TEST(DumpedTensor, ScalesMustFitTheBlocks) {
  DumpedTensor x{.fqn = "w",
                 .operand = "input",
                 .block_rows = 1,
                 .codes = Codes({2, 3}),
                 .scale = Tensor::Scalar(1.0f)};
  try {
    Decoded(x);
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()),
              "[w] expected 2 scales of input, got 1");
  }
}

TEST(DumpedTensor, MayBeEmpty) {
  DumpedTensor x{.codes = Tensor::Zeros(DType::kE5M2, {0, 3}),
                 .scale = Tensor::Scalar(1.0f)};
  EXPECT_EQ(Decoded(x).shape(), (Shape{0, 3}));
}

}  // namespace
}  // namespace onnx_fp8
