// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "base/check.h"
#include "onnx_fp8/float8.h"
#include "providers/cpu/cpu_provider.h"
#include "tests/providers/cpu/run_node.h"
#include "tests/providers/cpu/special_values.h"

namespace onnx_fp8 {
namespace {

Tensor Bools(const std::vector<int>& values) {
  Tensor t =
      Tensor::Allocate(DType::kBool, {static_cast<int64_t>(values.size())});
  for (size_t i = 0; i < values.size(); ++i) t.data<bool>()[i] = values[i] != 0;
  return t;
}

using Ints64 = std::vector<int64_t>;

// Flat index into an operand of shape `shape` for the element of the result at
// `index`: NumPy's rule, axis by axis.
int64_t BroadcastIndex(const Shape& shape, const Shape& index) {
  int64_t flat = 0;
  size_t skip = index.size() - shape.size();
  for (size_t a = 0; a < shape.size(); ++a) {
    flat = flat * shape[a] + (shape[a] == 1 ? 0 : index[skip + a]);
  }
  return flat;
}

struct ShapeCase {
  Shape a, b;
};
const ShapeCase kShapes[] = {
    {{}, {}},
    {{7}, {7}},
    {{1}, {5}},
    {{5}, {}},
    {{4, 6}, {6}},
    {{6}, {4, 6}},
    {{4, 1}, {4, 6}},
    {{4, 1}, {1, 6}},
    {{3, 1, 5}, {2, 1}},
    {{2, 3, 1, 5}, {2, 1, 4, 1}},
    {{1, 1, 300, 300}, {2, 1, 1, 300}},
    {{50, 1, 700}, {50, 3, 700}},
    {{0, 3}, {1, 3}},
    {{2, 0}, {}},
};

TEST(Binary, Broadcasts) {
  for (const ShapeCase& c : kShapes) {
    Tensor a = RandomNormal(c.a, 1);
    Tensor b = RandomNormal(c.b, 2);
    Tensor y = RunNode("Sub", {a, b})[0];
    Shape shape = BroadcastShapes(c.a, c.b, "test");
    ASSERT_EQ(y.shape(), shape);
    Shape index(shape.size(), 0);
    for (int64_t i = 0; i < y.size(); ++i) {
      int64_t rest = i;
      for (size_t k = shape.size(); k-- > 0;) {
        index[k] = rest % shape[k];
        rest /= shape[k];
      }
      ASSERT_EQ(y.data<float>()[i],
                a.data<float>()[BroadcastIndex(c.a, index)] -
                    b.data<float>()[BroadcastIndex(c.b, index)])
          << ToString(c.a) << " " << ToString(c.b) << " at " << i;
    }
  }
  EXPECT_THROW(RunNode("Add", {RandomNormal({2}, 1), RandomNormal({3}, 1)}),
               Error);
  EXPECT_THROW(RunNode("Add", {Vector<float>({1}), Vector<double>({1})}),
               Error);
}

TEST(Binary, FloatArithmetic) {
  Tensor a = Vector<float>({6, -7, 0.5f});
  Tensor b = Vector<float>({4, 2, -0.25f});
  EXPECT_TRUE(
      Identical(RunNode("Add", {a, b})[0], Vector<float>({10, -5, 0.25f})));
  EXPECT_TRUE(
      Identical(RunNode("Mul", {a, b})[0], Vector<float>({24, -14, -0.125f})));
  EXPECT_TRUE(
      Identical(RunNode("Div", {a, b})[0], Vector<float>({1.5f, -3.5f, -2})));
  EXPECT_TRUE(Identical(RunNode("Div", {a, Tensor::Scalar(0.0f)})[0],
                        Vector<float>({kInfinity, -kInfinity, kInfinity})));
  // In double: a third has more digits than a float holds.
  Tensor third = RunNode("Div", {Tensor::Scalar(1.0), Tensor::Scalar(3.0)})[0];
  EXPECT_EQ(DoubleAt(third, 0), 1.0 / 3.0);
  Tensor h = ConvertTo(a, DType::kFloat16);
  EXPECT_TRUE(
      Identical(RunNode("Add", {h, h})[0],
                ConvertTo(Vector<float>({12, -14, 1}), DType::kFloat16)));
}

TEST(Binary, IntegerArithmeticWraps) {
  constexpr int32_t kMin = std::numeric_limits<int32_t>::min();
  Tensor a = Vector<int32_t>({kMin, 7, -7, 7});
  Tensor b = Vector<int32_t>({-1, -2, 2, 2});
  EXPECT_EQ(ToInts(RunNode("Div", {a, b})[0]), (Ints64{kMin, -3, -3, 3}));
  EXPECT_EQ(ToInts(RunNode("Sub", {a, Tensor::Scalar(1)})[0]),
            (Ints64{2147483647, 6, -8, 6}));
  Tensor u = Vector<uint16_t>({65535, 3});
  EXPECT_EQ(ToInts(RunNode("Mul", {u, u})[0]), (Ints64{1, 9}));
  EXPECT_THROW(RunNode("Div", {a, Tensor::Scalar(0)}), Error);
}

TEST(Binary, Mod) {
  Tensor a = Vector<int64_t>({-4, 7, 5, 4, -7, 8});
  Tensor b = Vector<int64_t>({2, -3, 8, -2, 3, 5});
  EXPECT_EQ(ToInts(RunNode("Mod", {a, b})[0]), (Ints64{0, -2, 5, 0, 2, 3}));
  EXPECT_EQ(ToInts(RunNode("Mod", {a, b}, {{"fmod", int64_t{1}}})[0]),
            (Ints64{0, 1, 5, 0, -1, 3}));
  constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
  EXPECT_EQ(ToInts(RunNode(
                "Mod", {Vector<int64_t>({kMin}), Vector<int64_t>({-1})})[0]),
            (Ints64{0}));
  Tensor x = Vector<float>({-4.3f, 7.25f});
  Tensor y = Vector<float>({2.1f, -3});
  EXPECT_TRUE(Identical(RunNode("Mod", {x, y}, {{"fmod", int64_t{1}}})[0],
                        Vector<float>({std::fmod(-4.3f, 2.1f), 1.25f})));
  EXPECT_TRUE(
      Identical(RunNode("Mod", {x, y})[0],
                Vector<float>({std::fmod(-4.3f, 2.1f) + 2.1f, -1.75f})));
  EXPECT_THROW(RunNode("Mod", {a, Tensor::Scalar(int64_t{0})}), Error);
}

TEST(Binary, Pow) {
  Tensor x = Vector<float>({1, -2, 3, 0.5f});
  auto with = [&](auto e) { return RunNode("Pow", {x, Tensor::Scalar(e)})[0]; };
  EXPECT_TRUE(Identical(with(2.0f), Vector<float>({1, 4, 9, 0.25f})));
  EXPECT_TRUE(Identical(with(int64_t{3}), Vector<float>({1, -8, 27, 0.125f})));
  EXPECT_TRUE(Identical(with(-1.0), Vector<float>({1, -0.5f, 1.0f / 3, 2})));
  Tensor roots = RunNode("Pow", {Vector<float>({4, -0.0f, -kInfinity, -1}),
                                 Tensor::Scalar(0.5f)})[0];
  EXPECT_EQ(DoubleAt(roots, 0), 2);
  EXPECT_FALSE(std::signbit(DoubleAt(roots, 1)));
  EXPECT_EQ(DoubleAt(roots, 2), kInfinity);
  EXPECT_TRUE(std::isnan(DoubleAt(roots, 3)));

  Tensor i = Vector<int32_t>({-3, 2, 7, 0});
  EXPECT_EQ(ToInts(RunNode("Pow", {i, Vector<int64_t>({3, 10, 0, 0})})[0]),
            (Ints64{-27, 1024, 1, 1}));
  EXPECT_EQ(ToInts(RunNode("Pow", {i, Vector<float>({2, 0.5f, 20, 1})})[0]),
            (Ints64{9, 1, 2147483647, 0}));
  EXPECT_THROW(RunNode("Pow", {i, Tensor::Scalar(int64_t{-1})}), Error);
  // One exponent per base, result wider than the base.
  EXPECT_TRUE(Identical(
      RunNode("Pow", {Tensor::Scalar(2.0), Vector<double>({1, -2, 0.5})})[0],
      Vector<double>({2, 0.25, std::sqrt(2.0)})));
}

TEST(Binary, Variadic) {
  Tensor a = Vector<float>({1, kNaN, 3});
  Tensor b = Vector<float>({2, 2, kNaN});
  Tensor c = Tensor::Scalar(1.5f);
  Tensor most = RunNode("Max", {a, b, c})[0];
  EXPECT_EQ(DoubleAt(most, 0), 2);
  EXPECT_TRUE(std::isnan(DoubleAt(most, 1)) && std::isnan(DoubleAt(most, 2)));
  Tensor least = RunNode("Min", {a, b, c})[0];
  EXPECT_EQ(DoubleAt(least, 0), 1);
  EXPECT_TRUE(std::isnan(DoubleAt(least, 1)) && std::isnan(DoubleAt(least, 2)));

  Tensor row = Vector<float>({1, 2, 6});
  Tensor column = Tensor::From<float>({2, 1}, std::vector<float>{10, 20});
  EXPECT_TRUE(Identical(
      RunNode("Sum", {row, c, column})[0],
      Tensor::From<float>({2, 3}, std::vector<float>{12.5f, 13.5f, 17.5f, 22.5f,
                                                     23.5f, 27.5f})));
  EXPECT_TRUE(Identical(RunNode("Mean", {row, row, c})[0],
                        Vector<float>({3.5f / 3, 5.5f / 3, 13.5f / 3})));
  EXPECT_TRUE(Identical(RunNode("Sum", {row})[0], row));
  // The first two are both constant along the rows of the result.
  EXPECT_TRUE(Identical(
      RunNode("Sum", {column, column, row})[0],
      Tensor::From<float>({2, 3}, std::vector<float>{21, 22, 26, 41, 42, 46})));
  EXPECT_EQ(ToInts(RunNode("Max", {Vector<uint64_t>({1, ~0ull >> 1}),
                                   Vector<uint64_t>({5, 6})})[0]),
            (Ints64{5, std::numeric_limits<int64_t>::max()}));
  EXPECT_THROW(RunNode("Sum", {}), Error);
}

// The plan lets output 0 be input 0; a third operand may be input 0 too.
TEST(Binary, InPlaceSumReadsEachOperandBeforeItIsOverwritten) {
  Graph graph;
  Value* x = graph.AddInput("x", DType::kFloat, Shape{2});
  Value* w = graph.AddInput("w", DType::kFloat, Shape{2});
  Node* node = graph.AddNode("Sum", {x, w, x}, {"y"});
  Tensor tx = Vector<float>({1, 2});
  std::vector<Tensor> inputs = {tx, Vector<float>({10, 20}), tx};
  std::vector<Tensor> outputs = {tx};
  KernelContext context(*node, inputs, outputs);
  CpuKernels().Find("", "Sum")->kernel(context);
  EXPECT_TRUE(Identical(outputs[0], Vector<float>({12, 24})));
}

TEST(Binary, Comparisons) {
  Tensor a = Vector<float>({1, 2, 3, kNaN});
  Tensor b = Vector<float>({2, 2, 2, kNaN});
  EXPECT_EQ(ToInts(RunNode("Less", {a, b})[0]), (Ints64{1, 0, 0, 0}));
  EXPECT_EQ(ToInts(RunNode("LessOrEqual", {a, b})[0]), (Ints64{1, 1, 0, 0}));
  EXPECT_EQ(ToInts(RunNode("Greater", {a, b})[0]), (Ints64{0, 0, 1, 0}));
  EXPECT_EQ(ToInts(RunNode("GreaterOrEqual", {a, b})[0]), (Ints64{0, 1, 1, 0}));
  EXPECT_EQ(ToInts(RunNode("Equal", {a, b})[0]), (Ints64{0, 1, 0, 0}));
  constexpr int64_t kBig = (int64_t{1} << 53) + 1;  // not exact in double
  EXPECT_EQ(ToInts(RunNode("Equal", {Vector<int64_t>({kBig}),
                                     Vector<int64_t>({kBig - 1})})[0]),
            (Ints64{0}));
  EXPECT_EQ(ToInts(RunNode("Greater", {Vector<uint8_t>({200}),
                                       Vector<uint8_t>({100})})[0]),
            (Ints64{1}));
}

TEST(Binary, LogicAndBits) {
  Tensor a = Bools({0, 0, 1, 1});
  Tensor b = Bools({0, 1, 0, 1});
  EXPECT_EQ(ToInts(RunNode("And", {a, b})[0]), (Ints64{0, 0, 0, 1}));
  EXPECT_EQ(ToInts(RunNode("Or", {a, b})[0]), (Ints64{0, 1, 1, 1}));
  EXPECT_EQ(ToInts(RunNode("Xor", {a, b})[0]), (Ints64{0, 1, 1, 0}));
  EXPECT_EQ(ToInts(RunNode("Equal", {a, b})[0]), (Ints64{1, 0, 0, 1}));
  EXPECT_THROW(RunNode("And", {Vector<int32_t>({1}), Vector<int32_t>({1})}),
               Error);
  Tensor i = Vector<int16_t>({12, -1});
  Tensor j = Vector<int16_t>({10, 255});
  EXPECT_EQ(ToInts(RunNode("BitwiseAnd", {i, j})[0]), (Ints64{8, 255}));
  EXPECT_EQ(ToInts(RunNode("BitwiseOr", {i, j})[0]), (Ints64{14, -1}));
  EXPECT_EQ(ToInts(RunNode("BitwiseXor", {i, j})[0]), (Ints64{6, -256}));
  Tensor u = Vector<uint8_t>({16, 4, 1, 255});
  Tensor s = Vector<uint8_t>({1, 2, 8, 7});
  EXPECT_EQ(ToInts(RunNode("BitShift", {u, s},
                           {{"direction", std::string("RIGHT")}})[0]),
            (Ints64{8, 1, 0, 1}));
  EXPECT_EQ(ToInts(RunNode("BitShift", {u, s},
                           {{"direction", std::string("LEFT")}})[0]),
            (Ints64{32, 16, 0, 128}));
  EXPECT_THROW(RunNode("BitShift", {u, s}), Error);
  Tensor negative = Vector<int8_t>({-8, -8, 4, -1, 64});
  Tensor by = Vector<int8_t>({1, 8, -1, -3, 1});
  EXPECT_EQ(ToInts(RunNode("BitShift", {negative, by},
                           {{"direction", std::string("RIGHT")}})[0]),
            (Ints64{-4, -1, 0, -1, 32}));
  EXPECT_EQ(ToInts(RunNode("BitShift", {negative, by},
                           {{"direction", std::string("LEFT")}})[0]),
            (Ints64{-16, 0, 0, 0, -128}));
}

TEST(Binary, Where) {
  Tensor c = Tensor::Allocate(DType::kBool, {2, 1});
  c.data<bool>()[0] = true;
  c.data<bool>()[1] = false;
  Tensor x = Vector<double>({1, 2, 3});
  Tensor y = Tensor::Scalar(9.0);
  EXPECT_TRUE(Identical(
      RunNode("Where", {c, x, y})[0],
      Tensor::From<double>({2, 3}, std::vector<double>{1, 2, 3, 9, 9, 9})));
  Tensor mask = Bools({1, 0, 1});
  for (DType dtype : {DType::kBool, DType::kE4M3, DType::kBFloat16,
                      DType::kInt32, DType::kInt64}) {
    Tensor one = ConvertTo(Vector<float>({1, 1, 1}), dtype);
    Tensor zero = ConvertTo(Vector<float>({0, 0, 0}), dtype);
    Tensor want = ConvertTo(Vector<float>({1, 0, 1}), dtype);
    Tensor scalar = ConvertTo(Tensor::Scalar(0.0f), dtype);
    EXPECT_TRUE(Identical(RunNode("Where", {mask, one, zero})[0], want));
    EXPECT_TRUE(Identical(RunNode("Where", {mask, one, scalar})[0], want));
    EXPECT_FALSE(Identical(RunNode("Where", {mask, scalar, one})[0], want));
  }
  EXPECT_THROW(RunNode("Where", {x, x, x}), Error);
}

TEST(Binary, PRelu) {
  Tensor x = Tensor::From<float>({2, 2}, std::vector<float>{-1, 2, -3, 4});
  Tensor slope = Vector<float>({0.5f, 0.25f});
  EXPECT_TRUE(Identical(
      RunNode("PRelu", {x, slope})[0],
      Tensor::From<float>({2, 2}, std::vector<float>{-0.5f, 2, -1.5f, 4})));
  EXPECT_THROW(RunNode("PRelu", {slope, x}), Error);
}

}  // namespace
}  // namespace onnx_fp8
