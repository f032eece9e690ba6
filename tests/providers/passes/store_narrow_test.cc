// SPDX-License-Identifier: Apache-2.0
#include "providers/passes/store_narrow.h"

#include <gtest/gtest.h>

#include "graph/onnx/verify.h"
#include "graph/print.h"
#include "providers/cpu/cpu_provider.h"
#include "providers/plan/plan.h"
#include "tests/graph/parse.h"
#include "tests/providers/cpu/run_node.h"
#include "tests/training/gradient_check.h"

namespace onnx_fp8 {
namespace {

constexpr char kHead[] = R"(graph "g" opset 24
input x: float[2,6]
)";

// The text of the graph behind its inputs.
std::string After(const std::string& text) {
  auto graph = ParseGraph(kHead + text);
  StoreNarrow(*graph, CpuKernels());
  Verify(*graph);
  std::string after = Print(*graph);
  return after.substr(after.find("[2,6]\n") + 6);
}

void ExpectUnchanged(const std::string& text) { EXPECT_EQ(After(text), text); }

TEST(StoreNarrow, AKernelTakesOverTheRounding) {
  EXPECT_EQ(After(R"(a: float[2,6] = Gelu(x)
b: float[2,6] = onnx_fp8.RoundTo<to=16>(a)
c: float[2,6] = Gelu(b)
output c
)"),
            R"(b: float as bfloat16[2,6] = Gelu(x)
c: float[2,6] = Gelu(b)
output c
)");
}

TEST(StoreNarrow, ARoundingStaysWhereAnotherNodeReadsTheUnroundedResult) {
  EXPECT_EQ(After(R"(a: float[2,6] = Gelu(x)
b: float[2,6] = onnx_fp8.RoundTo<to=10>(a)
c: float[2,6] = Mul(a, b)
output c
)"),
            R"(a: float[2,6] = Gelu(x)
b: float as float16[2,6] = onnx_fp8.RoundTo<to=10>(a)
c: float[2,6] = Mul(a, b)
output c
)");
}

TEST(StoreNarrow, OneReaderThatNeedsFloatsKeepsFloats) {
  ExpectUnchanged(R"(a: float[2,6] = onnx_fp8.RoundTo<to=16>(x)
b: float[2,6] = Gelu(a)
c: float[2,6] = Sin(a)
output b
output c
)");
}

// A weight that travels in 16 bits is widened behind its gather.
constexpr char kWidened[] = R"(h: bfloat16[2,6] = Cast<to=16>(x)
b: float[2,6] = Cast<to=1>(h)
c: float[2,6] = Gelu(b)
output c
)";

TEST(StoreNarrow, AWidenedValueStaysIn16BitsAndIsNoStep) {
  EXPECT_EQ(After(kWidened), R"(h: bfloat16[2,6] = Cast<to=16>(x)
b: float as bfloat16[2,6] = Cast<to=1>(h)
c: float[2,6] = Gelu(b)
output c
)");
  ExpectUnchanged(R"(h: bfloat16[2,6] = Cast<to=16>(x)
b: float[2,6] = Cast<to=1>(h)
c: float[2,6] = Sin(b)
output c
)");
  const auto wide = ParseGraph(kHead + std::string(kWidened));
  const auto narrow = ParseGraph(kHead + std::string(kWidened));
  StoreNarrow(*narrow, CpuKernels());
  const Plan plan = MakePlan(*narrow, CpuKernels());
  CheckPlan(plan, *narrow, CpuKernels());
  EXPECT_EQ(plan.steps.size(), 2u);
  EXPECT_EQ(MakePlan(*wide, CpuKernels()).steps.size(), 3u);
  const std::map<std::string, Tensor> feeds = {{"x", RandomNormal({2, 6}, 1)}};
  EXPECT_EQ(LargestDifference(RunGraph(*narrow, feeds).at("c"),
                              RunGraph(*wide, feeds).at("c")),
            0);
}

TEST(StoreNarrow, AnOutputKeepsItsDType) {
  ExpectUnchanged(R"(a: float[2,6] = Gelu(x)
b: float[2,6] = onnx_fp8.RoundTo<to=16>(a)
c: float[2,6] = Gelu(b)
output b
output c
)");
}

TEST(StoreNarrow, RoundingMovesThroughViewsAndMoves) {
  EXPECT_EQ(After(R"(a: float[2,6] = Gelu(x)
b: float[2,6] = Relu(x)
c: float[2,6] = Tanh(x)
d: float[4,6] = Concat<axis=0>(a, c)
e: float[6,4] = Transpose(d)
f: float[6,4] = onnx_fp8.RoundTo<to=16>(e)
g: float[6,4] = Gelu(f)
output b
output g
)"),
            R"(a.RoundTo: float as bfloat16[2,6] = Gelu(x)
b: float[2,6] = Relu(x)
c.RoundTo: float as bfloat16[2,6] = Tanh(x)
d: float as bfloat16[4,6] = Concat<axis=0>(a.RoundTo, c.RoundTo)
e: float as bfloat16[6,4] = Transpose(d)
g: float[6,4] = Gelu(e)
output b
output g
)");
}

TEST(StoreNarrow, FewerElementsAreRoundedBeforeAMove) {
  EXPECT_EQ(After(R"(input one: float[2,1]
input n: int64[2]
a: float[2,512] = Expand(one, n)
b: float[2,512] = onnx_fp8.RoundTo<to=16>(a)
c: float[4,512] = Concat<axis=0>(b, b)
d: float[4,512] = Gelu(c)
output d
)"),
            R"(input one: float[2,1]
input n: int64[2]
one.RoundTo: float as bfloat16[2,1] = onnx_fp8.RoundTo<to=16>(one)
a: float as bfloat16[2,512] = Expand(one.RoundTo, n)
c: float as bfloat16[4,512] = Concat<axis=0>(a, a)
d: float[4,512] = Gelu(c)
output d
)");
}

TEST(StoreNarrow, OneSourceOfSeveralPlacesIsRoundedOnce) {
  EXPECT_EQ(After(R"(input w: float[6,1]
input n: int64[2]
one: float[2,1] = MatMul(x, w)
a: float[2,3] = Concat<axis=1>(one, one, one)
b: float[2,3] = onnx_fp8.RoundTo<to=16>(a)
c: float[2,3] = Gelu(b)
d: float[2,1] = Sin(one)
output c
output d
)"),
            R"(input w: float[6,1]
input n: int64[2]
one: float[2,1] = MatMul(x, w)
one.RoundTo: float as bfloat16[2,1] = onnx_fp8.RoundTo<to=16>(one)
a: float as bfloat16[2,3] = Concat<axis=1>(one.RoundTo, one.RoundTo, one.RoundTo)
c: float[2,3] = Gelu(a)
d: float[2,1] = Sin(one)
output c
output d
)");
}

TEST(StoreNarrow, AMoveThatAnotherNodeReadsStays) {
  EXPECT_EQ(After(R"(a: float[2,6] = Gelu(x)
b: float[6,2] = Transpose(a)
c: float[6,2] = onnx_fp8.RoundTo<to=16>(b)
d: float[6,2] = Gelu(c)
e: float[6,2] = Sin(b)
output d
output e
)"),
            R"(a: float[2,6] = Gelu(x)
b: float[6,2] = Transpose(a)
c: float as bfloat16[6,2] = onnx_fp8.RoundTo<to=16>(b)
d: float[6,2] = Gelu(c)
e: float[6,2] = Sin(b)
output d
output e
)");
}

TEST(StoreNarrow, MoreElementsAreNotRounded) {
  EXPECT_EQ(After(R"(input p: int64[1]
a: float[1,6] = Gather<axis=0>(x, p)
b: float[1,6] = onnx_fp8.RoundTo<to=16>(a)
c: float[1,6] = Gelu(b)
output c
)"),
            R"(input p: int64[1]
a: float[1,6] = Gather<axis=0>(x, p)
b: float as bfloat16[1,6] = onnx_fp8.RoundTo<to=16>(a)
c: float[1,6] = Gelu(b)
output c
)");
}

TEST(StoreNarrow, AMoveOfFloatsAndRoundedValuesKeepsFloats) {
  ExpectUnchanged(R"(a: float[2,6] = onnx_fp8.RoundTo<to=16>(x)
b: float[4,6] = Concat<axis=0>(a, x)
c: float[4,6] = Gelu(b)
output c
)");
}

TEST(StoreNarrow, TwoRoundingsAreNotOne) {
  EXPECT_EQ(After(R"(a: float[2,6] = onnx_fp8.RoundTo<to=16>(x)
b: float[2,6] = onnx_fp8.RoundTo<to=10>(a)
c: float[2,6] = Gelu(b)
output c
)"),
            R"(a: float as bfloat16[2,6] = onnx_fp8.RoundTo<to=16>(x)
b: float as float16[2,6] = onnx_fp8.RoundTo<to=10>(a)
c: float[2,6] = Gelu(b)
output c
)");
}

}  // namespace
}  // namespace onnx_fp8
