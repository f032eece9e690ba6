// SPDX-License-Identifier: Apache-2.0
#include "graph/onnx/upgrade.h"

#include <gtest/gtest.h>

#include <string>

#include "base/check.h"
#include "graph/onnx/verify.h"
#include "graph/print.h"
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
  EXPECT_EQ(Print(*graph), R"(graph "g" opset 28
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

TEST(Upgrade, AnOldRoiAlignSamplesByWholePixels) {
  auto graph = ParseGraph(R"(graph "g" opset 15
input x: float[2,3,4,4]
input r: float[5,4]
input i: int64[5]
a: float[5,3,1,1] = RoiAlign<mode="max">(x, r, i)
b: float[5,3,1,1] = RoiAlign<coordinate_transformation_mode="half_pixel">(x, r, i)
output a
output b
)");
  Upgrade(*graph);
  EXPECT_EQ(Print(*graph), R"(graph "g" opset 28
input x: float[2,3,4,4]
input r: float[5,4]
input i: int64[5]
a: float[5,3,1,1] = RoiAlign<coordinate_transformation_mode="output_half_pixel", mode="max">(x, r, i)
b: float[5,3,1,1] = RoiAlign<coordinate_transformation_mode="half_pixel">(x, r, i)
output a
output b
)");
}

TEST(Upgrade, AttributesOfTheOldestFormsBecomeOperands) {
  auto graph = ParseGraph(R"(graph "g" opset 9
input x: float16[2,3,4]
a: ? = Slice<axes=[1], ends=[1], starts=[0]>(x)
b: ? = Clip<max=6.0>(a)
c: ? = Pad<pads=[0,0,0,0,0,1], value=1.5>(b)
d: ? = Squeeze<axes=[1]>(c)
e: ?, i: ? = TopK<k=2>(d)
f: ? = Dropout<ratio=0.5>(e)
output f
)");
  Upgrade(*graph);
  EXPECT_EQ(Print(*graph), R"(graph "g" opset 28
input x: float16[2,3,4]
const a.starts: int64[1] = {0}
const a.ends: int64[1] = {1}
const a.axes: int64[1] = {1}
const b.max: float16[] = {6.0}
const c.pads: int64[6] = {0,0,0,0,0,1}
const c.value: float16[] = {1.5}
const d.axes: int64[1] = {1}
const e.k: int64[1] = {2}
const f.ratio: float16[] = {0.5}
a: float16[2,1,4] = Slice(x, a.starts, a.ends, a.axes)
b: float16[2,1,4] = Clip(a, , b.max)
c: float16[2,1,5] = Pad(b, c.pads, c.value)
d: float16[2,5] = Squeeze(c, d.axes)
e: float16[2,2], i: int64[2,2] = TopK(d, e.k)
f: float16[2,2] = Dropout(e, f.ratio)
output f
)");
}

// The operand also has another default.
TEST(Upgrade, TheAxisOfDftBecomesAnOperand) {
  auto graph = ParseGraph(R"(graph "g" opset 17
input x: float[2,3,4,1]
const n: int64[] = {8}
a: float[2,3,4,2] = DFT(x)
b: float[2,3,8,1] = DFT<axis=2, inverse=1>(x, n)
output a
output b
)");
  Upgrade(*graph);
  Verify(*graph);
  EXPECT_EQ(Print(*graph), R"(graph "g" opset 28
input x: float[2,3,4,1]
const n: int64[] = {8}
const a.axis: int64[] = {1}
const b.axis: int64[] = {2}
a: float[2,3,4,2] = DFT(x, , a.axis)
b: float[2,3,8,1] = DFT<inverse=1>(x, n, b.axis)
output a
output b
)");
}

// The attribute becomes the last axis if the rank is known, and the first of
// several axes otherwise.
TEST(Upgrade, SoftmaxOfSeveralAxes) {
  auto graph = ParseGraph(R"(graph "g" opset 12
input x: float[2,3,4]
a: ? = Softmax<axis=2>(x)
b: ? = Softmax(a)
output b
)");
  Upgrade(*graph);
  Verify(*graph);
  EXPECT_EQ(Print(*graph), R"(graph "g" opset 28
input x: float[2,3,4]
a: float[2,3,4] = Softmax<axis=-1>(x)
b.Flatten: float[2,12] = Flatten<axis=1>(a)
b.Softmax: float[2,12] = Softmax<axis=-1>(b.Flatten)
b.Shape: int64[3] = Shape(a)
b: float[2,3,4] = Reshape(b.Softmax, b.Shape)
output b
)");
}

constexpr char kNorm[] = R"(graph "g" opset 12
input x: float[2,3,4]
param g: float[3]
y: float[2,3,4], m: float[3], v: float[3], sm: float[3], sv: float[3] = BatchNormalization(x, g, g, g, g)
output y
)";

TEST(Upgrade, FiveOutputsAreBatchNormInTraining) {
  auto graph = ParseGraph(kNorm);
  Upgrade(*graph);
  Verify(*graph);
  EXPECT_EQ(Print(*graph), R"(graph "g" opset 28
input x: float[2,3,4]
param g: float[3]
y: float[2,3,4], m: float[3], v: float[3] = BatchNormalization<training_mode=1>(x, g, g, g, g)
output y
)");
}

std::string ErrorOf(const std::string& text) {
  auto graph = ParseGraph(text);
  try {
    Upgrade(*graph);
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

TEST(Upgrade, SaysWhatHasNoNewerForm) {
  EXPECT_EQ(ErrorOf(std::string(kNorm) + "output sm\n"),
            "[BatchNormalization -> y] expected the statistics of the batch "
            "not to be read: BatchNormalization has no such outputs since "
            "opset 14");
  EXPECT_EQ(ErrorOf(R"(graph "g" opset 8
input x: float[2,3]
param g: float[3]
y: ?, m: ? = BatchNormalization<spatial=0>(x, g, g, g, g)
)"),
            "[BatchNormalization -> y] expected spatial 1 of a "
            "BatchNormalization in training mode, got 0");
  EXPECT_EQ(ErrorOf(R"(graph "g" opset 8
input n: int64[2]
input x: float[2,3]
y: ? = Scan<num_scan_inputs=1>(n, x)
)"),
            "[Scan -> y] expected a Scan without lengths of sequences, which "
            "ONNX has dropped since opset 8, got some");
  EXPECT_EQ(ErrorOf(R"(graph "g" opset 12
input x: float[1,1,4]
const s: float[3] = {1,1,2}
y: ? = Resize<coordinate_transformation_mode="tf_half_pixel_for_nn", mode="linear">(x, , s)
)"),
            "[Resize -> y] expected tf_half_pixel_for_nn with mode nearest and "
            "nearest_mode floor, which has a newer form, got others");
}

TEST(Upgrade, NewFormsStay) {
  const char* text = R"(graph "g" opset 28
input x: float[2,3]
a: float[2,3] = ReduceMean<axes=[1]>(x)
output a
)";
  auto graph = ParseGraph(text);
  Upgrade(*graph);
  EXPECT_EQ(Print(*graph), text);
}

TEST(Upgrade, RefusesOtherOpsets) {
  auto graph = ParseGraph("graph \"g\" opset 6\n");
  EXPECT_THROW(Upgrade(*graph), Error);
  graph = ParseGraph("graph \"g\" opset 29\n");
  EXPECT_THROW(Upgrade(*graph), Error);
}

}  // namespace
}  // namespace onnx_fp8
