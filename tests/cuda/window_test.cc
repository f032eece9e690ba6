// SPDX-License-Identifier: Apache-2.0
//
// Pools and constants on the GPU beside the CPU.
#include <gtest/gtest.h>

#include <ostream>
#include <string>

#include "tests/cuda/beside_cpu.h"

namespace onnx_fp8 {
namespace {

struct NodeCase {
  const char* name;
  const char* text;
  double tolerance = 5e-6;
};

void PrintTo(const NodeCase& c, std::ostream* out) { *out << c.name; }

class CudaWindowTest : public testing::TestWithParam<NodeCase> {};

TEST_P(CudaWindowTest, GivesTheCpusNumbers) {
  ExpectCpusResults(std::string("graph \"g\" opset 22\n") + GetParam().text,
                    GetParam().tolerance);
}

const NodeCase kWindowCases[] = {
    // Pools.
    {"MaxPool", R"(input x: float[2,3,9,11]
y: float[2,3,4,5], i: int64[2,3,4,5] = MaxPool<kernel_shape=[3,3], strides=[2,2]>(x)
)",
     0},
    {"MaxPoolColumnMajor", R"(input x: float[2,3,9,11]
y: float[2,3,5,6], i: int64[2,3,5,6] = MaxPool<kernel_shape=[3,2], strides=[2,2], pads=[1,0,1,0], ceil_mode=1, storage_order=1>(x)
)",
     0},
    {"MaxPoolDilated", R"(input x: float[1,2,30]
y: float[1,2,26] = MaxPool<kernel_shape=[3], dilations=[2]>(x)
)",
     0},
    {"AveragePool", R"(input x: float[2,3,9,11]
y: float[2,3,5,6] = AveragePool<kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1]>(x)
)"},
    {"AveragePoolPads", R"(input x: float[2,3,6,7,8]
y: float[2,3,4,4,5] = AveragePool<kernel_shape=[3,3,3], strides=[2,2,2], pads=[1,1,1,1,1,1], ceil_mode=1, count_include_pad=1>(x)
)"},
    {"LpPool", R"(input x: float[2,3,9,11]
y: float[2,3,7,9] = LpPool<kernel_shape=[3,3], p=3>(x)
y1: float[2,3,7,9] = LpPool<kernel_shape=[3,3], p=1>(x)
y2: float[2,3,7,9] = LpPool<kernel_shape=[3,3]>(x)
)"},
    {"GlobalPools", R"(input x: float[3,5,9,11]
y: float[3,5,1,1] = GlobalAveragePool(x)
m: float[3,5,1,1] = GlobalMaxPool(x)
)"},
    {"GlobalPoolsOfLargePlanes", R"(input x: float[1,3,61,53]
y: float[1,3,1,1] = GlobalAveragePool(x)
m: float[1,3,1,1] = GlobalMaxPool(x)
)"},
    // Constants.
    {"Constants", R"(input x: float[3,5]
input e: float[0,5]
const sizes: int64[2] = {3,7}
const none: int64[2] = {3,0}
const from: int64[] = {7}
const to: int64[] = {-4}
const step: int64[] = {-3}
const start: float[] = {0.1}
const limit: float[] = {9}
const delta: float[] = {0.3}
z: float[3,7] = ConstantOfShape(sizes)
n: float[3,0] = ConstantOfShape(none)
s: int64[2] = Shape(x)
t: int64[1] = Shape<start=-1>(x)
k: int64[] = Size(x)
r: int64[4] = Range(from, to, step)
f: float[30] = Range(start, limit, delta)
i: float[3,5] = EyeLike(x)
j: int64[3,5] = EyeLike<k=-1, dtype=7>(x)
h: float16[3,5] = EyeLike<k=2, dtype=10>(x)
o: bool[3,5] = EyeLike<k=9, dtype=9>(x)
u: float[0,5] = EyeLike(e)
c: float[] = Constant<value_float=2.5>()
d: int64[3] = Constant<value_ints=[1,-2,3]>()
)",
     0},
};

INSTANTIATE_TEST_SUITE_P(All, CudaWindowTest, testing::ValuesIn(kWindowCases),
                         [](const auto& info) { return info.param.name; });

TEST(CudaWindowErrors, WindowsNeedInput) {
  EXPECT_NE(ErrorOnGpu("graph \"g\" opset 22\n"
                       "input x: float[1,1,4]\n"
                       "y: float[1,1,7] = MaxPool<kernel_shape=[2], "
                       "pads=[2,2]>(x)\n")
                .find("expected pads that leave input in every window"),
            std::string::npos);
}

}  // namespace
}  // namespace onnx_fp8
