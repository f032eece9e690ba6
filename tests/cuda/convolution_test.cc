// SPDX-License-Identifier: Apache-2.0
//
// Convolutions on the GPU beside the CPU.
#include <gtest/gtest.h>

#include "tests/cuda/beside_cpu.h"
#include "tests/cuda/convolution_case.h"

namespace onnx_fp8 {
namespace {

class CudaConvolutionTest : public testing::TestWithParam<ConvolutionCase> {};

TEST_P(CudaConvolutionTest, GivesTheCpusNumbers) {
  ExpectCpusResults(GraphText(GetParam()), GetParam().tolerance);
}

TEST_P(CudaConvolutionTest, GivesTheCpusNumbersIn16Bits) {
  ExpectCpusResultsIn16Bits(GraphText(GetParam()), GetParam().tolerance);
}

INSTANTIATE_TEST_SUITE_P(All, CudaConvolutionTest,
                         testing::ValuesIn(ConvolutionCases()),
                         [](const auto& info) { return info.param.name; });

TEST(CudaConvolutionErrors, DoubleIsRefused) {
  EXPECT_NE(ErrorOnGpu("graph \"g\" opset 22\n"
                       "input x: double[1,1,4]\n"
                       "input w: double[1,1,2]\n"
                       "y: double[1,1,3] = Conv(x, w)\n")
                .find("expected float, got double"),
            std::string::npos);
}

}  // namespace
}  // namespace onnx_fp8
