// SPDX-License-Identifier: Apache-2.0
#include "graph/upgrade.h"

#include <gtest/gtest.h>

#include "graph/print.h"
#include "graph/verify.h"
#include "onnx_fp8/check.h"
#include "tests/graph/parse.h"

namespace onnx_fp8 {
namespace {

TEST(Upgrade, OldFormsBecomeTheNewest) {
  auto graph = ParseGraph(R"(graph "g" opset 16
input x: float[2,3,4,4]
input grid: float[2,5,5,2]
a: float[2,3] = ReduceMean<axes=[2,3], keepdims=0>(x)
b: float[] = ReduceMax<keepdims=0>(x)
c: float[1,3,4,4], d: float[1,3,4,4] = Split<axis=0>(x)
e: float[2,3,5,5] = GridSample<mode="bilinear">(x, grid)
f: float[2,3,5,5] = GridSample<mode="bicubic">(x, grid)
output a
output b
output c
output d
output e
output f
)");
  Upgrade(*graph);
  Verify(*graph);
  EXPECT_EQ(Print(*graph), R"(graph "g" opset 24
input x: float[2,3,4,4]
input grid: float[2,5,5,2]
const a.axes: int64[2] = {2,3}
a: float[2,3] = ReduceMean<keepdims=0>(x, a.axes)
b: float[] = ReduceMax<keepdims=0>(x)
c: float[1,3,4,4], d: float[1,3,4,4] = Split<axis=0, num_outputs=2>(x)
e: float[2,3,5,5] = GridSample<mode="linear">(x, grid)
f: float[2,3,5,5] = GridSample<mode="cubic">(x, grid)
output a
output b
output c
output d
output e
output f
)");
}

TEST(Upgrade, NewFormsStay) {
  const char* text = R"(graph "g" opset 24
input x: float[2,3]
a: float[2,3] = ReduceMean<axes=[1]>(x)
output a
)";
  auto graph = ParseGraph(text);
  Upgrade(*graph);
  EXPECT_EQ(Print(*graph), text);
}

TEST(Upgrade, RefusesOtherOpsets) {
  auto graph = ParseGraph("graph \"g\" opset 12\n");
  EXPECT_THROW(Upgrade(*graph), Error);
  graph = ParseGraph("graph \"g\" opset 25\n");
  EXPECT_THROW(Upgrade(*graph), Error);
}

}  // namespace
}  // namespace onnx_fp8
