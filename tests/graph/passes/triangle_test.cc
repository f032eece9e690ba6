// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/triangle.h"

#include <gtest/gtest.h>

#include "tests/graph/fusion.h"

namespace onnx_fp8 {
namespace {

constexpr int64_t kSize = 4;

// Masks "m" as exporters write them, and their neighbors.
const char kHeading[] = R"(graph "g" opset 24
const rows: int64[4] = {0,1,2,3}
const later: int64[4] = {5,6,7,8}
const mixed: int64[4] = {0,2,1,3}
const square: int64[2] = {4,4}
const batch: int64[4] = {2,1,4,4}
const four: int64[4] = {1,1,4,4}
const column: int64[2] = {4,1}
const zero: int64[] = {0}
const one: int64[] = {1}
const minus: int64[] = {-1}
const five: int64[] = {5}
const first: int64[1] = {1}
const none: float[] = {0}
const fill: float[] = {1}
const low: float[] = {-inf}
const yes: bool[] = {1}
const large: float[1,1,6,6] = {2,7,7,7,7,7,2,2,7,7,7,7,2,2,2,7,7,7,2,2,2,2,7,7,2,2,2,2,2,7,2,2,2,2,2,2}
const begin: int64[2] = {0,0}
const shifted: int64[2] = {1,0}
const end: int64[2] = {4,4}
const end_shifted: int64[2] = {5,4}
const axes: int64[2] = {2,3}
const uneven: float[4,4] = {0,1,1,1,0,0,1,1,0,0,0,1,0,0,2,0}
const twice: float[2,4,4] = {0,9,9,9,0,0,9,9,0,0,0,9,0,0,0,0,0,9,9,9,0,0,9,9,0,0,0,9,0,0,0,0}
const unlike: float[2,4,4] = {0,9,9,9,0,0,9,9,0,0,0,9,0,0,0,0,0,9,9,9,0,0,9,9,0,0,0,8,0,0,0,0}
const ones: float[4,4] = {1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1}
)";

struct Mask {
  const char* name;
  const char* nodes;
  bool found;
};

void PrintTo(const Mask& m, std::ostream* out) { *out << m.name; }

std::string Text(const Mask& mask) {
  return std::string(kHeading) + mask.nodes + "output m\n";
}

class Masks : public testing::TestWithParam<Mask> {};

TEST_P(Masks, AreTrianglesOfTheirNumbers) {
  std::string text = Text(GetParam());
  auto graph = ParseGraph(text);
  auto triangle = TriangleIn(graph->outputs[0], kSize);
  ASSERT_EQ(triangle.has_value(), GetParam().found);
  if (!triangle) return;
  Tensor m = ConvertTo(ResultOf(nullptr, text), DType::kDouble);
  ASSERT_EQ(m.size() % (kSize * kSize), 0);
  for (int64_t i = 0; i < m.size(); ++i) {
    int64_t row = i / kSize % kSize, column = i % kSize;
    EXPECT_EQ(m.data<double>()[i],
              column <= row ? triangle->lower : triangle->upper)
        << row << ", " << column;
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, Masks,
    testing::Values(
        // torch.tril of ones, turned into numbers that are added.
        Mask{"Trilu",
             "e: float[4,4] = Expand(fill, square)\n"
             "t: float[4,4] = Trilu<upper=0>(e)\n"
             "b: bool[4,4] = Cast<to=9>(t)\n"
             "m: float[4,4] = Where(b, none, low)\n",
             true},
        Mask{"TriluOfBooleans",
             "e: bool[4,4] = Expand(yes, square)\n"
             "t: bool[4,4] = Trilu<upper=0>(e, zero)\n"
             "n: bool[4,4] = Not(t)\n"
             "m: bool[1,1,4,4] = Reshape(n, four)\n",
             true},
        // torch.triu of -inf above the diagonal.
        Mask{"UpperTrilu",
             "e: float[4,4] = Expand(low, square)\n"
             "m: float[4,4] = Trilu<upper=1>(e, one)\n",
             true},
        Mask{"UpperTriluWithTheDiagonal",
             "e: float[4,4] = Expand(fill, square)\n"
             "m: float[4,4] = Trilu<upper=1>(e)\n",
             false},
        Mask{"LowerTriluBelowTheDiagonal",
             "e: float[4,4] = Expand(fill, square)\n"
             "m: float[4,4] = Trilu<upper=0>(e, minus)\n",
             false},
        Mask{"Filled",
             "e: float[4,4] = ConstantOfShape(square)\n"
             "o: float[4,4] = Add(e, fill)\n"
             "m: float[4,4] = Trilu<upper=0>(o)\n",
             true},
        // arange(T) compared with arange(T)[:, None].
        Mask{"Compare",
             "r: int64[4,1] = Reshape(rows, column)\n"
             "m: bool[4,4] = LessOrEqual(rows, r)\n",
             true},
        Mask{"CompareTheOtherWay",
             "r: int64[4,1] = Unsqueeze(rows, first)\n"
             "m: bool[4,4] = Less(r, rows)\n",
             true},
        Mask{"CompareStrictly",
             "r: int64[4,1] = Unsqueeze(rows, first)\n"
             "m: bool[4,4] = Less(rows, r)\n",
             false},
        Mask{"CompareOtherNumbers",
             "r: int64[4,1] = Unsqueeze(mixed, first)\n"
             "m: bool[4,4] = Less(r, rows)\n",
             false},
        Mask{"CompareMoved",
             "r: int64[4,1] = Unsqueeze(rows, first)\n"
             "f: int64[4,1] = Add(five, r)\n"
             "m: bool[4,4] = Greater(later, f)\n",
             true},
        Mask{"CompareMovedBack",
             "r: int64[4,1] = Unsqueeze(later, first)\n"
             "f: int64[4,1] = Sub(r, five)\n"
             "c: bool[4,4] = Greater(rows, f)\n"
             "m: bool[2,1,4,4] = Expand(c, batch)\n",
             true},
        Mask{"CompareMovedTooFar",
             "r: int64[4,1] = Unsqueeze(rows, first)\n"
             "m: bool[4,4] = Greater(later, r)\n",
             false},
        Mask{"CompareRowsWithRows", "m: bool[4] = Greater(later, rows)\n",
             false},
        Mask{"Slice", "m: float[1,1,4,4] = Slice(large, begin, end, axes)\n",
             true},
        Mask{"SliceFromTheSecondRow",
             "m: float[1,1,4,4] = Slice(large, shifted, end_shifted, axes)\n",
             false},
        Mask{"Uneven", "m: float[4,4] = Identity(uneven)\n", false},
        Mask{"Twice", "m: float[2,4,4] = Identity(twice)\n", true},
        Mask{"Unlike", "m: float[2,4,4] = Identity(unlike)\n", false},
        Mask{"Uniform", "m: float[4,4] = Neg(ones)\n", true},
        Mask{"Arithmetic",
             "e: float[4,4] = Expand(fill, square)\n"
             "t: float[4,4] = Trilu<upper=0>(e)\n"
             "i: float[4,4] = Sub(ones, t)\n"
             "m: float[4,4] = Mul(i, low)\n",
             false},  // 0 · -inf is NaN
        Mask{"And",
             "r: int64[4,1] = Unsqueeze(rows, first)\n"
             "a: bool[4,4] = LessOrEqual(rows, r)\n"
             "b: bool[4,4] = Greater(rows, r)\n"
             "o: bool[4,4] = Or(a, b)\n"
             "c: bool[4,4] = And(a, o)\n"
             "d: int64[4,4] = Cast<to=7>(c)\n"
             "m: bool[4,4] = Equal(d, one)\n",
             true}),
    [](const auto& info) { return info.param.name; });

// Each Add reads a value twice: it is looked at once.
TEST(Triangle, OfManySumsOfThemselves) {
  std::string nodes = "m0: float[4,4] = Trilu(ones, one)\n";
  for (int i = 1; i <= 30; ++i) {
    std::string before = "m" + std::to_string(i - 1);
    nodes += (i < 30 ? "m" + std::to_string(i) : "m") + ": float[4,4] = Add(" +
             before + ", " + before + ")\n";
  }
  auto graph = ParseGraph(Text({"", nodes.c_str(), true}));
  EXPECT_TRUE(TriangleIn(graph->outputs[0], 4));
}

TEST(Triangle, OfAnotherSize) {
  auto graph =
      ParseGraph(Text({"", "m: float[4,4] = Trilu(ones, one)\n", true}));
  EXPECT_TRUE(TriangleIn(graph->outputs[0], 4));
  EXPECT_FALSE(TriangleIn(graph->outputs[0], 5));
}

}  // namespace
}  // namespace onnx_fp8
