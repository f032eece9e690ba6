// SPDX-License-Identifier: Apache-2.0
#include "training/step/trains_line.h"

#include <gtest/gtest.h>

#include "tests/graph/parse.h"
#include "training/step/training_model.h"

namespace onnx_fp8 {
namespace {

TEST(TrainsLine, CountsAndNamesAllThatIsNotTrained) {
  auto graph = ParseGraph(R"(
input x: float[20,6]
const w: float[6,1000]
const v: float[1000]
const idle: float[1000]
const ones: float[1000]
const mean: float[1000]
const var: float[1000]
y: float[20,1000] = MatMul(x, w)
z: float[20,1000] = Mul(y, v)
unread: float[20,1000] = Mul(y, idle)
u: float[20,1000] = BatchNormalization(z, v, ones, mean, var)
output u
output unread
)");
  auto tensors = MarkParameters(*graph, {.freeze = {"v"}});
  EXPECT_EQ(TrainsLine(tensors, UnusedParameters(*graph, {"u"})),
            "trains 2 of 4 parameters, 7,000 numbers (guessed from the graph: "
            "`train` and `freeze` choose others); not trained: 1 frozen "
            "parameter (v), 1 parameter that the loss does not reach (idle), "
            "2 statistics");
  EXPECT_NE(TrainsLine(tensors, {"idle", "w"})
                .find("2 parameters that the loss does not reach (w, idle)"),
            std::string::npos);
  tensors = MarkParameters(*graph, {.train = {"w"}, .freeze = {"*"}});
  EXPECT_EQ(TrainsLine(tensors, {}),
            "trains 1 of 4 parameters, 6,000 numbers (by `train`); not "
            "trained: 3 frozen parameters (v, idle, ones), 2 statistics");
}

TEST(UnusedParameters, AreThoseBehindStepsAndCodes) {
  auto graph = ParseGraph(R"(
input x: float[2,3]
const a: float[3,3]
const b: float[3]
const c: float[3]
const s: float[] = {0.1}
p: float[2,3] = MatMul(x, a)
q: float[2,3] = Round(b)
codes: int8[3] = QuantizeLinear(c, s)
r: float[3] = DequantizeLinear(codes, s)
t: float[2,3] = Mul(p, q)
y: float[2,3] = Add(t, r)
output y
)");
  for (const char* name : {"a", "b", "c"}) {
    graph->Find(name)->role = Role::kParameter;
  }
  // Round has a gradient of zero; codes that return to floats pass theirs.
  EXPECT_EQ(UnusedParameters(*graph, {"y"}), std::set<std::string>{"b"});
}

}  // namespace
}  // namespace onnx_fp8
