// SPDX-License-Identifier: Apache-2.0
//
// Convolutions, pools and constants on the GPU beside the CPU.
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

const NodeCase kCases[] = {
    // Tiles.
    {"Conv", R"(input x: float[2,5,9,11]
input w: float[70,5,3,3]
input b: float[70]
y: float[2,70,9,11] = Conv<pads=[1,1,1,1]>(x, w, b)
)"},
    {"ConvStridesDilations", R"(input x: float[3,6,13,17]
input w: float[16,3,3,2]
y: float[3,16,5,8] = Conv<group=2, strides=[2,2], dilations=[2,3], pads=[0,1,1,1]>(x, w)
)"},
    {"Conv1D", R"(input x: float[2,4,50]
input w: float[9,4,5]
y: float[2,9,50] = Conv<auto_pad="SAME_UPPER">(x, w)
)"},
    {"Conv3D", R"(input x: float[1,3,4,5,6]
input w: float[8,3,2,3,2]
y: float[1,8,3,3,5] = Conv(x, w)
)"},
    {"ConvPointwise", R"(input x: float[2,40,7,7]
input w: float[130,40,1,1]
y: float[2,130,7,7] = Conv(x, w)
)"},
    {"ConvNegativePads", R"(input x: float[1,3,9,9]
input w: float[8,3,3,3]
y: float[1,8,6,7] = Conv<pads=[-1,0,0,0]>(x, w)
)"},
    {"ConvSplitSums", R"(input x: float[3,70,12,12]
input w: float[20,70,10,10]
input b: float[20]
y: float[3,20,3,3] = Conv(x, w, b)
)",
     2e-5},
    {"ConvNoImage", R"(input x: float[0,3,9,9]
input w: float[8,3,3,3]
y: float[0,8,7,7] = Conv(x, w)
)"},
    // A thread or a block for each result.
    {"ConvDepthwise", R"(input x: float[2,10,9,11]
input w: float[20,1,3,3]
input b: float[20]
y: float[2,20,9,11] = Conv<group=10, pads=[1,1,1,1]>(x, w, b)
)"},
    {"ConvFewChannels", R"(input x: float[2,10,9,11]
input w: float[3,10,3,3]
y: float[2,3,5,6] = Conv<strides=[2,2], pads=[1,1,1,1]>(x, w)
)"},
    {"ConvLongSums", R"(input x: float[2,12,30,31]
input w: float[6,6,29,30]
input b: float[6]
y: float[2,6,2,2] = Conv<group=2>(x, w, b)
)",
     2e-5},
    {"ConvTranspose", R"(input x: float[2,5,6,7]
input w: float[5,12,3,4]
input b: float[12]
y: float[2,12,11,14] = ConvTranspose<strides=[2,2], pads=[1,1,1,1]>(x, w, b)
)"},
    {"ConvTransposeGroups", R"(input x: float[2,6,6,7]
input w: float[6,9,3,3]
y: float[2,18,20,10] = ConvTranspose<group=2, strides=[3,1], dilations=[2,2], output_padding=[0,0], pads=[0,0,0,1]>(x, w)
)"},
    {"ConvTransposeDepthwise", R"(input x: float[2,6,6,7]
input w: float[6,1,2,2]
y: float[2,6,13,14] = ConvTranspose<group=6, strides=[2,2], output_padding=[1,0]>(x, w)
)"},
    {"ConvTransposeLongSums", R"(input x: float[1,300,3,3]
input w: float[300,2,2,2]
y: float[1,2,4,4] = ConvTranspose(x, w)
)",
     2e-5},
    {"ConvTranspose1D", R"(input x: float[2,300,5]
input w: float[300,20,4]
y: float[2,20,17] = ConvTranspose<strides=[3], pads=[0,-1]>(x, w)
)",
     2e-5},
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

INSTANTIATE_TEST_SUITE_P(All, CudaWindowTest, testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

TEST(CudaWindowErrors, WindowsNeedInput) {
  EXPECT_NE(ErrorOnGpu("graph \"g\" opset 22\n"
                       "input x: float[1,1,4]\n"
                       "y: float[1,1,7] = MaxPool<kernel_shape=[2], "
                       "pads=[2,2]>(x)\n")
                .find("expected pads that leave input in every window"),
            std::string::npos);
}

TEST(CudaWindowErrors, DoubleIsRefused) {
  EXPECT_NE(ErrorOnGpu("graph \"g\" opset 22\n"
                       "input x: double[1,1,4]\n"
                       "input w: double[1,1,2]\n"
                       "y: double[1,1,3] = Conv(x, w)\n")
                .find("expected float, got double"),
            std::string::npos);
}

}  // namespace
}  // namespace onnx_fp8
