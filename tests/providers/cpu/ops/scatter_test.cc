// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "graph/graph.h"
#include "providers/cpu/cpu_provider.h"
#include "tests/providers/cpu/run_node.h"

namespace onnx_fp8 {
namespace {

using V = std::vector<double>;

Attributes Reduction(const std::string& name) { return {{"reduction", name}}; }

TEST(ScatterElements, ReductionsWithRepeatedIndices) {
  Tensor x = Floats({4}, {1, 2, 3, 4}), i = Tensor::Ints({1, -3, 3});
  Tensor u = Floats({3}, {5, -7, 2});
  auto scatter = [&](const std::string& reduction) {
    return Doubles(
        RunNode1("ScatterElements", {x, i, u}, Reduction(reduction)));
  };
  EXPECT_EQ(scatter("none"), (V{1, -7, 3, 2}));
  EXPECT_EQ(scatter("add"), (V{1, 0, 3, 6}));
  EXPECT_EQ(scatter("mul"), (V{1, -70, 3, 8}));
  EXPECT_EQ(scatter("max"), (V{1, 5, 3, 4}));
  EXPECT_EQ(scatter("min"), (V{1, -7, 3, 2}));
}

TEST(ScatterElements, EveryKindOfElement) {
  Tensor i = Tensor::Ints({0, 0});
  for (DType dtype : {DType::kFloat, DType::kDouble, DType::kInt8,
                      DType::kInt64, DType::kFloat16, DType::kBFloat16}) {
    Tensor x = ConvertTo(Floats({2}, {1, 2}), dtype);
    Tensor u = ConvertTo(Floats({2}, {3, 4}), dtype);
    EXPECT_EQ(Doubles(RunNode1("ScatterElements", {x, i, u}, Reduction("add"))),
              (V{8, 2}))
        << Name(dtype);
  }
  Tensor x = ConvertTo(Floats({2}, {1, 2}), DType::kE4M3);
  EXPECT_EQ(Doubles(RunNode1("ScatterElements",
                             {x, Tensor::Ints({1}),
                              ConvertTo(Floats({1}, {448}), DType::kE4M3)})),
            (V{1, 448}));
  EXPECT_NE(ErrorOf("ScatterElements", {x, i, x}, Reduction("add")), "");
  // Integers wrap around instead of overflowing.
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(IntAt(RunNode1("ScatterElements",
                           {Tensor::Ints({kMax}), Tensor::Ints({0}),
                            Tensor::Ints({1})},
                           Reduction("add")),
                  0),
            std::numeric_limits<int64_t>::min());
}

TEST(ScatterElements, NaNWins) {
  float nan = std::nanf("");
  for (const char* reduction : {"max", "min"}) {
    Tensor y = RunNode1(
        "ScatterElements",
        {Floats({3}, {nan, 1, 2}), Tensor::Ints({0, 1}), Floats({2}, {1, nan})},
        Reduction(reduction));
    EXPECT_TRUE(std::isnan(DoubleAt(y, 0))) << reduction;
    EXPECT_TRUE(std::isnan(DoubleAt(y, 1))) << reduction;
  }
}

TEST(ScatterElements, DataThatIsItsOwnUpdateAndResult) {
  Graph graph;
  Tensor x = Floats({3}, {1, 2, 3}), i = Tensor::Ints({1, 2, 0});
  Value* xv = graph.AddInput("x", DType::kFloat, Shape{3});
  Value* iv = graph.AddInput("i", DType::kInt64, Shape{3});
  Node* node =
      graph.AddNode("ScatterElements", {xv, iv, xv}, {"y"}, Reduction("add"));
  std::vector<Tensor> inputs = {x, i, x}, outputs = {x};
  KernelContext context(*node, inputs, outputs);
  CpuKernels().Find("", "ScatterElements")->kernel(context);
  EXPECT_EQ(Doubles(x), (V{4, 3, 5}));
}

TEST(ScatterElements, RefusesBadOperands) {
  Tensor x = Count({2, 3}), u = Floats({1, 1}, {7});
  auto index = [](int64_t i) { return Tensor::Ints({i}).Reshaped({1, 1}); };
  EXPECT_EQ(ErrorOf("ScatterElements", {x, index(1), u}), "");
  EXPECT_NE(ErrorOf("ScatterElements", {x, index(2), u}), "");
  EXPECT_NE(ErrorOf("ScatterElements", {x, index(-3), u}), "");
  EXPECT_NE(ErrorOf("ScatterElements", {x, index(0), Count({1, 2})}), "");
  EXPECT_NE(ErrorOf("ScatterElements", {x, Tensor::Ints({0}), Count({1})}), "");
  EXPECT_NE(
      ErrorOf("ScatterElements",
              {x, Tensor::Ints({0, 0, 0, 0}).Reshaped({1, 4}), Count({1, 4})}),
      "");
  EXPECT_NE(ErrorOf("ScatterElements", {x, index(0), index(0)}), "");
  EXPECT_NE(ErrorOf("ScatterElements", {x, index(0), u}, Reduction("sum")), "");
}

TEST(ScatterND, RowsAndWholeTensors) {
  Tensor x = Count({2, 2});
  EXPECT_EQ(Doubles(RunNode1("ScatterND",
                             {x, Tensor::Ints({-1, 1}).Reshaped({2, 1}),
                              Floats({2, 2}, {1, 1, 10, 20})},
                             Reduction("add"))),
            (V{0, 1, 13, 24}));
  // No index at all: the updates replace everything.
  EXPECT_EQ(Doubles(RunNode1("ScatterND", {x, Tensor::Ints({}).Reshaped({0}),
                                           Floats({2, 2}, {4, 3, 2, 1})})),
            (V{4, 3, 2, 1}));
}

TEST(ScatterND, RefusesBadOperands) {
  Tensor x = Count({2, 2}), one = Tensor::Ints({1}).Reshaped({1, 1});
  EXPECT_EQ(ErrorOf("ScatterND", {x, one, Count({1, 2})}), "");
  EXPECT_NE(ErrorOf("ScatterND", {x, one, Count({2})}), "");
  EXPECT_NE(ErrorOf("ScatterND",
                    {x, Tensor::Ints({2}).Reshaped({1, 1}), Count({1, 2})}),
            "");
  EXPECT_NE(ErrorOf("ScatterND",
                    {x, Tensor::Ints({0, 0, 0}).Reshaped({1, 3}), Count({1})}),
            "");
  EXPECT_NE(ErrorOf("ScatterND", {x, Tensor::Scalar(int64_t{0}), Count({2})}),
            "");
}

}  // namespace
}  // namespace onnx_fp8
