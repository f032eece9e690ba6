// SPDX-License-Identifier: Apache-2.0
// The messages of kernels for operands, axes and attributes that do not fit.
#include "providers/ops/arguments.h"

#include <gtest/gtest.h>

#include "providers/cpu/tasks.h"
#include "providers/ops/divide_up.h"
#include "tests/providers/cpu/run_node.h"

namespace onnx_fp8 {
namespace {

const Shape kTwo = {2}, kThree = {3};

TEST(Arguments, ChoicesAreListed) {
  Tensor pads = Tensor::Ints({0, 1});
  EXPECT_EQ(
      ErrorOf("Pad", {Count(kTwo), pads}, {{"mode", std::string("mirror")}}),
      "[Pad n] expected mode constant, reflect, edge or wrap, got mirror");
  EXPECT_EQ(ErrorOf("DepthToSpace", {Count({1, 4, 1, 1})},
                    {{"blocksize", int64_t{2}}, {"mode", std::string("dcr")}}),
            "[DepthToSpace n] expected mode DCR or CRD, got dcr");
  Tensor byte = Tensor::From<uint8_t>({}, std::vector<uint8_t>{1});
  EXPECT_EQ(ErrorOf("BitShift", {byte, byte}),
            "[BitShift n] expected direction LEFT or RIGHT, got ");
}

TEST(Arguments, OperandsAreCheckedByDTypeAndShape) {
  Tensor x = Count(kTwo);
  std::string where = std::string("[") + kDomain + ".SoftmaxGrad n] ";
  std::string like = where + "expected operand 0 to be float[2], got ";
  EXPECT_EQ(ErrorOf("SoftmaxGrad", {Count(kThree), x}, {}, 1, kDomain),
            like + "float[3]");
  Tensor wide = ConvertTo(x, DType::kDouble);
  EXPECT_EQ(ErrorOf("SoftmaxGrad", {wide, x}, {}, 1, kDomain),
            like + "double[2]");
  EXPECT_EQ(ErrorOf("SoftmaxGrad", {x}, {}, 1, kDomain),
            where + "expected an operand 1, got none");
  EXPECT_EQ(ErrorOf("SoftmaxGrad", {x, x}, {}, 1, kDomain), "");
}

TEST(Arguments, IndicesCountFromBothEnds) {
  Tensor x = Count(kThree);
  auto gathered = [&](int64_t index) {
    Tensor indices = Tensor::From<int64_t>({1, 1}, std::vector{index});
    return Doubles(RunNode1("GatherND", {x, indices}))[0];
  };
  EXPECT_EQ(gathered(-3), 0);
  EXPECT_EQ(gathered(2), 2);
  for (int64_t index : {-4, 3}) {
    Tensor indices = Tensor::From<int64_t>({1, 1}, std::vector{index});
    EXPECT_EQ(
        ErrorOf("GatherND", {x, indices}),
        "[GatherND n] expected indices in -3…2, got " + std::to_string(index));
  }
  EXPECT_EQ(ErrorOf("GatherND", {x, Count({1, 1})}),
            "[GatherND n] expected int32 or int64 in operand 1, got float");
}

TEST(Arguments, AxesSizesAndDTypes) {
  Tensor x = Count(kThree), index = Tensor::Ints({0});
  EXPECT_EQ(ErrorOf("Gather", {x, index}, {{"axis", int64_t{1}}}),
            "[Gather n] expected an axis in -1…0, got 1");
  EXPECT_EQ(ErrorOf("ConstantOfShape", {Tensor::Ints({2, -1})}),
            "[ConstantOfShape n] expected sizes, got -1");
  EXPECT_EQ(ErrorOf("EyeLike", {Count({2, 2})}, {{"dtype", int64_t{8}}}),
            "[EyeLike n] expected a numeric dtype, got 8");
}

TEST(Arguments, RowsFillATask) {
  EXPECT_EQ(RowsPerTask(0), kGrain);
  EXPECT_EQ(RowsPerTask(kGrain / 4), 4);
  EXPECT_EQ(RowsPerTask(kGrain / 4 + 1), 3);
  EXPECT_EQ(RowsPerTask(2 * kGrain), 1);
  EXPECT_EQ(DivideUp(0, 8), 0);
  EXPECT_EQ(DivideUp(8, 8), 1);
  EXPECT_EQ(DivideUp(9, 8), 2);
  EXPECT_EQ(RoundUp(9, 8), 16);
}

TEST(Arguments, AViewHasTheAxesAroundIt) {
  AxisView v = ViewAlong({2, 3, 5, 7}, 1, 2);
  EXPECT_EQ(v.outer, 2);
  EXPECT_EQ(v.n, 15);
  EXPECT_EQ(v.inner, 7);
}

}  // namespace
}  // namespace onnx_fp8
