// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/convolution_case.h"

#include <ostream>

namespace onnx_fp8 {
namespace {

const ConvolutionCase kConvolutions[] = {
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
    // Gradients of weights, as training emits them.
    {"ConvWeightGradient", R"(input x: float[5,6,9,11]
input w: float[12,6,4,10]
y: float[5,12,3,2] = Conv<strides=[1,2], dilations=[2,1], pads=[0,1,0,1]>(x, w)
)",
     2e-5},
    {"ConvWeightGradientDepthwise", R"(input x: float[1,12,9,11]
input w: float[6,2,9,11]
y: float[1,6,3,3] = Conv<group=6, pads=[1,1,1,1]>(x, w)
)",
     2e-5},
    {"ConvWeightGradientGroups", R"(input x: float[3,8,9,11]
input w: float[6,4,9,11]
y: float[3,6,3,3] = Conv<group=2, pads=[1,1,1,1]>(x, w)
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
};

}  // namespace

void PrintTo(const ConvolutionCase& c, std::ostream* out) { *out << c.name; }

std::string GraphText(const ConvolutionCase& c) {
  return std::string("graph \"g\" opset 22\n") + c.text;
}

std::span<const ConvolutionCase> ConvolutionCases() { return kConvolutions; }

}  // namespace onnx_fp8
