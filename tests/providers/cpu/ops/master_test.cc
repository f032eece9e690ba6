// SPDX-License-Identifier: Apache-2.0
//
// The ops EncodeMaster and DecodeMaster: kernels beside bodies.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "base/check.h"
#include "base/random.h"
#include "tests/providers/cpu/body_runner.h"
#include "tests/providers/cpu/run_node.h"

namespace onnx_fp8 {
namespace {

constexpr DType kCorrections[] = {DType::kInt8, DType::kInt16};

Attributes WithCorrection(DType dtype) {
  return {{"correction", static_cast<int64_t>(dtype)}};
}

// Floats of any bits but NaN's; then the ends of the floats, and neighbors of
// powers of two.
Tensor FloatsForMasters() {
  constexpr uint32_t kEnds[] = {
      0,          0x80000000, 1,          0x80000001, 0x7F,       0x80,
      0x7FFF,     0x8000,     0xFFFF,     0x10000,    0x007FFFFF, 0x807FFFFF,
      0x00800000, 0x007F8000, 0x00808000, 0x7F7EFFFF, 0x7F7F0000, 0x7F7F7FFF,
      0x7F7F8000, 0x7F7FFF7F, 0x7F7FFF80, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000,
      0xFF800000, 0x3F800000, 0x3F7FFFFF, 0x3F7F8000, 0x3F7FFF80, 0x3F808000,
      0x3F818000, 0xBF80FFFF, 0x3FFFFFFF, 0x3F800180, 0x3F800080};
  constexpr int64_t kCount = 400;
  Tensor x = Tensor::Allocate(DType::kFloat, {4, kCount / 4});
  for (int64_t i = 0; i < kCount; ++i) {
    auto bits =
        static_cast<uint32_t>(RandomBits(9, static_cast<uint64_t>(i)) >> 32);
    if ((bits & 0x7FFFFFFF) > 0x7F800000) bits = 0x3F804000;
    if (i < static_cast<int64_t>(std::size(kEnds))) bits = kEnds[i];
    x.data<float>()[i] = std::bit_cast<float>(bits);
  }
  return x;
}

TEST(MasterOps, EqualTheirBodies) {
  const Tensor x = FloatsForMasters();
  for (DType dtype : kCorrections) {
    const Attributes attributes = WithCorrection(dtype);
    ExpectBodyAndKernelAgree("EncodeMaster", {x}, attributes, 2);
    const auto kept = RunNode("EncodeMaster", {x}, attributes, 2, kDomain);
    EXPECT_EQ(kept[1].dtype(), dtype);
    ExpectBodyAndKernelAgree("DecodeMaster", kept, attributes, 1);
    const Tensor back = RunNode1("DecodeMaster", kept, attributes, kDomain);
    EXPECT_EQ(Identical(back, x), dtype == DType::kInt16);
  }
}

TEST(MasterOps, ShapesWithoutAxesAndWithoutElements) {
  for (const Shape& shape : {Shape{}, Shape{0, 3}, Shape{2, 3, 5}}) {
    const Tensor x = RandomNormal(shape, 1);
    for (DType dtype : kCorrections) {
      const Attributes attributes = WithCorrection(dtype);
      ExpectBodyAndKernelAgree("EncodeMaster", {x}, attributes, 2);
      ExpectBodyAndKernelAgree(
          "DecodeMaster", RunNode("EncodeMaster", {x}, attributes, 2, kDomain),
          attributes, 1);
    }
  }
}

TEST(MasterOps, ANanStaysOne) {
  std::vector<float> values;
  for (uint32_t bits : {0x7F800001u, 0x7FC00000u, 0xFF80FFFFu, 0x7FFFFFFFu}) {
    values.push_back(std::bit_cast<float>(bits));
  }
  const Tensor x = Tensor::From<float>({4}, values);
  for (DType dtype : kCorrections) {
    const Attributes attributes = WithCorrection(dtype);
    for (bool by_body : {false, true}) {
      const auto kept =
          by_body ? RunBody("EncodeMaster", {x}, attributes, 2)
                  : RunNode("EncodeMaster", {x}, attributes, 2, kDomain);
      const Tensor back =
          by_body ? RunBody("DecodeMaster", kept, attributes, 1)[0]
                  : RunNode1("DecodeMaster", kept, attributes, kDomain);
      for (int64_t i = 0; i < x.size(); ++i) {
        EXPECT_EQ(DoubleAt(kept[1], i), 0) << i;
        EXPECT_TRUE(std::isnan(DoubleAt(kept[0], i))) << i;
        EXPECT_TRUE(std::isnan(DoubleAt(back, i))) << i;
      }
    }
  }
}

TEST(MasterOps, TheSchemasSayShapesAndDTypes) {
  using Facts = std::vector<std::string>;
  EXPECT_EQ(Inferred("EncodeMaster", {{DType::kFloat, Shape{2, 3}}},
                     WithCorrection(DType::kInt8), 2),
            (Facts{"bfloat16[2,3]", "int8[2,3]"}));
  const OperandFacts half{DType::kBFloat16, Shape{2, 3}};
  const OperandFacts rest{DType::kInt16, Shape{2, 3}};
  EXPECT_EQ(
      Inferred("DecodeMaster", {half, rest}, WithCorrection(DType::kInt16), 1),
      Facts{"float[2,3]"});
  EXPECT_THROW(
      Inferred("DecodeMaster", {half, rest}, WithCorrection(DType::kInt8), 1),
      Error);
  EXPECT_THROW(Inferred("DecodeMaster", {half, {DType::kInt16, Shape{3, 2}}},
                        WithCorrection(DType::kInt16), 1),
               Error);
  EXPECT_THROW(Inferred("EncodeMaster", {{DType::kDouble, Shape{2}}},
                        WithCorrection(DType::kInt8), 2),
               Error);
  EXPECT_THROW(Inferred("EncodeMaster", {{DType::kFloat, Shape{2}}},
                        WithCorrection(DType::kInt32), 2),
               Error);
}

}  // namespace
}  // namespace onnx_fp8
