// SPDX-License-Identifier: Apache-2.0
//
// The op UpdateAmax: its kernel beside its body, and numbers by hand.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/check.h"
#include "tests/providers/cpu/body_runner.h"
#include "tests/providers/cpu/run_node.h"

namespace onnx_fp8 {
namespace {

// 0.5 and 0.25 are exact, and so are their powers.
Attributes HalfAndQuarter() {
  return {{"one_minus_beta1", 0.5f}, {"one_minus_beta2", 0.25f}, {"eps", 0.5f}};
}

float AmaxOfUpdate(const Tensor& m, const Tensor& v, int64_t step) {
  return RunNode1("UpdateAmax", {m, v, Tensor::Scalar(step)}, HalfAndQuarter(),
                  kDomain)
      .data<float>()[0];
}

TEST(UpdateAmax, IsTheLargestElementOfTheUpdate) {
  const Tensor m = Floats({2, 2}, {0.5f, -2, 1, 0});
  const Tensor v = Floats({2, 2}, {0.25f, 1, 4, 0});
  // 1 - 0.5 = 0.5 and 1 - 0.75 = 0.25, whose root is 0.5: 2 / (1 / 0.5 + 0.5)
  // is the largest, divided by 0.5.
  EXPECT_EQ(AmaxOfUpdate(m, v, 1), 0.8f * 2);
  // Later the corrections are 1.
  EXPECT_EQ(AmaxOfUpdate(m, v, 1 << 20), 2 / 1.5f);
  // A mean of squares that is too small: 2 / 0.5 / 0.5.
  EXPECT_EQ(AmaxOfUpdate(m, Floats({2, 2}, {0.25f, 0, 4, 0}), 1), 8);
}

TEST(UpdateAmax, EqualsItsBody) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr float kNone = std::numeric_limits<float>::quiet_NaN();
  for (const Shape& shape :
       {Shape{}, Shape{1}, Shape{3, 5, 7}, Shape{40000}, Shape{0, 2}}) {
    for (float special : {1.0f, 0.0f, 1e30f, kInf, -kInf, kNone}) {
      Tensor m = RandomNormal(shape, 1), v = RandomNormal(shape, 2);
      for (int64_t i = 0; i < v.size(); ++i) {
        v.data<float>()[i] = std::fabs(v.data<float>()[i]);
      }
      if (m.size() > 0) m.data<float>()[m.size() / 2] = special;
      for (int64_t step : {1, 3, 1000}) {
        ExpectBodyAndKernelAgree("UpdateAmax", {m, v, Tensor::Scalar(step)},
                                 {{"one_minus_beta1", 0.1f},
                                  {"one_minus_beta2", 0.001f},
                                  {"eps", 1e-8f}},
                                 1);
        ExpectBodyAndKernelAgree(
            "UpdateAmax",
            {ConvertTo(m, DType::kDouble), ConvertTo(v, DType::kDouble),
             Tensor::Scalar(step)},
            HalfAndQuarter(), 1);
      }
    }
  }
}

TEST(UpdateAmax, NanCountsAsInfinite) {
  Tensor m = Floats({3}, {1, 2, 3}), v = Floats({3}, {1, -1, 1});
  EXPECT_EQ(AmaxOfUpdate(m, v, 1), std::numeric_limits<float>::infinity());
}

TEST(UpdateAmax, OperandsThatDoNotFitAreRefused) {
  const OperandFacts m = {DType::kFloat, Shape{3, 2}};
  const OperandFacts step = {DType::kInt64, Shape{}};
  EXPECT_EQ(Inferred("UpdateAmax", {m, m, step}, HalfAndQuarter(), 1),
            std::vector<std::string>{"float[]"});
  const OperandFacts others[] = {{DType::kFloat, Shape{2, 3}},
                                 {DType::kDouble, Shape{3, 2}}};
  for (const OperandFacts& v : others) {
    EXPECT_THROW(Inferred("UpdateAmax", {m, v, step}, HalfAndQuarter(), 1),
                 Error);
  }
  EXPECT_THROW(Inferred("UpdateAmax", {m, m, m}, HalfAndQuarter(), 1), Error);
}

}  // namespace
}  // namespace onnx_fp8
