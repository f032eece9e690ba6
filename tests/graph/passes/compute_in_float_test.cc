// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/compute_in_float.h"

#include <gtest/gtest.h>

#include "graph/graph.h"
#include "tests/graph/parse.h"

namespace onnx_fp8 {
namespace {

// A written forward in bfloat16 rounds what training rounds.
TEST(ComputeInFloat, RoundToRoundsToTheSameTypeAsBefore) {
  auto graph = ParseGraph(R"(graph "g" opset 24
input x: bfloat16[2]
const w: bfloat16[2] = {1.5,-2}
y: bfloat16[2] = Mul(x, w)
r: bfloat16[2] = onnx_fp8.RoundTo<to=16>(y)
z: float[2] = Cast<to=1>(r)
n: bfloat16[2] = Cast<to=16>(z)
output n
)");
  ComputeInFloat(*graph);
  for (const Value* value : graph->Values()) {
    EXPECT_EQ(value->dtype, DType::kFloat) << value->name;
  }
  EXPECT_EQ(graph->Find("r")->producer->Int("to", 0),
            static_cast<int64_t>(DType::kBFloat16));
  EXPECT_EQ(graph->Find("n")->producer->Int("to", 0),
            static_cast<int64_t>(DType::kFloat));
}

}  // namespace
}  // namespace onnx_fp8
