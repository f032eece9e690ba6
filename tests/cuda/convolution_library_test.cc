// SPDX-License-Identifier: Apache-2.0
//
// Which convolutions are the library's, how they reach it, and our own kernels
// where there is no library.
#include "tests/cuda/convolution_library.h"

#include <gtest/gtest.h>

#include "providers/cuda/cuda_provider.h"
#include "providers/passes/store_narrow.h"
#include "providers/run/executor.h"
#include "tests/cuda/beside_cpu.h"
#include "tests/cuda/convolution_case.h"
#include "tests/cuda/emulation/emulation.h"
#include "tests/graph/parse.h"
#include "tests/providers/cpu/random_feeds.h"

namespace onnx_fp8 {
namespace {

using cuda::ConvolutionPass;
using cuda::ConvolutionProblem;
using Problems = std::vector<ConvolutionProblem>;

class OwnConvolutionTest : public testing::TestWithParam<ConvolutionCase> {
 protected:
  void SetUp() override {
    cuda::TakeConvolutions();
    cuda::SetConvolutionLibrary(false);
  }
  void TearDown() override {
    cuda::SetConvolutionLibrary(true);
    EXPECT_EQ(cuda::TakeConvolutions(), Problems{});
  }
};

TEST_P(OwnConvolutionTest, GivesTheCpusNumbers) {
  ExpectCpusResults(GraphText(GetParam()), GetParam().tolerance);
}

TEST_P(OwnConvolutionTest, GivesTheCpusNumbersIn16Bits) {
  ExpectCpusResultsIn16Bits(GraphText(GetParam()), GetParam().tolerance);
}

INSTANTIATE_TEST_SUITE_P(All, OwnConvolutionTest,
                         testing::ValuesIn(ConvolutionCases()),
                         [](const auto& info) { return info.param.name; });

// The problems of `runs` runs of the graph.
Problems ProblemsOf(const std::shared_ptr<Graph>& graph, int runs = 1) {
  StoreNarrow(*graph, CudaKernels());
  auto cuda = MakeCudaProvider();
  Executor executor(graph, *cuda);
  TensorMap feeds = RandomFeeds(*graph, {}), state;
  const int reports = emulation::Reports();
  cuda::TakeConvolutions();
  for (int i = 0; i < runs; ++i) executor.Run(feeds, state);
  cuda->Synchronize();
  EXPECT_EQ(emulation::Reports(), reports) << emulation::LastReport();
  return cuda::TakeConvolutions();
}

Problems ProblemsOf(const std::string& text, int runs = 1) {
  return ProblemsOf(ParseGraph("graph \"g\" opset 22\n" + text + "output y\n"),
                    runs);
}

constexpr char kPlain[] = R"(input x: float[2,6,8,10]
input w: float[4,3,3,2]
y: float[2,4,5,4] = Conv<group=2, strides=[2,3], dilations=[1,2], pads=[1,2,2,1]>(x, w)
)";

// The second window ends behind the last row that it reads.
TEST(CudaConvolutionLibrary, ReadsTheNodesNumbers) {
  EXPECT_EQ(ProblemsOf(kPlain),
            (Problems{{.pass = ConvolutionPass::kForward,
                       .storage = cuda::Storage::kFloat,
                       .x = {{2, 6, 8, 10}, {480, 80, 10, 1}},
                       .weight = {{4, 3, 3, 2}, {18, 6, 2, 1}},
                       .y = {{2, 4, 5, 4}, {80, 20, 4, 1}},
                       .stride = {2, 3},
                       .dilation = {1, 2},
                       .pad = {1, 2},
                       .pad_end = {2, 0}}}));
}

TEST(CudaConvolutionLibrary, ReadsConvTransposesBackwards) {
  EXPECT_EQ(ProblemsOf(R"(input x: float[2,6,5]
input w: float[6,4,3]
y: float[2,8,12] = ConvTranspose<group=2, strides=[2], pads=[0,0], output_padding=[1]>(x, w)
)"),
            (Problems{{.pass = ConvolutionPass::kInputGradient,
                       .storage = cuda::Storage::kFloat,
                       .x = {{2, 8, 1, 12}, {96, 12, 12, 1}},
                       .weight = {{6, 4, 1, 3}, {12, 3, 3, 1}},
                       .y = {{2, 6, 1, 5}, {30, 5, 5, 1}},
                       .stride = {1, 2},
                       .dilation = {1, 1},
                       .pad = {0, 0},
                       .pad_end = {0, 0}}}));
}

TEST(CudaConvolutionLibrary, ReadsGradientsOfWeights) {
  EXPECT_EQ(ProblemsOf(R"(input x: float[5,6,3,9,11]
input w: float[12,6,2,4,10]
y: float[5,12,2,3,2] = Conv<strides=[1,1,2], dilations=[1,2,1], pads=[0,0,1,0,0,1]>(x, w)
)"),
            (Problems{{.pass = ConvolutionPass::kWeightGradient,
                       .storage = cuda::Storage::kFloat,
                       .x = {{6, 5, 3, 9, 11}, {297, 1782, 99, 11, 1}},
                       .weight = {{12, 5, 2, 3, 2}, {60, 12, 6, 2, 1}},
                       .y = {{6, 12, 2, 4, 10}, {80, 480, 40, 10, 1}},
                       .stride = {1, 2, 1},
                       .dilation = {1, 1, 2},
                       .pad = {0, 0, 1},
                       .pad_end = {0, 0, 0}}}));
}

// Three groups of two channels and five images: the batch and the channels of
// one group have changed places in x (2, 3·5, 6, 6).
TEST(CudaConvolutionLibrary, ReadsGradientsOfWeightsOfGroups) {
  EXPECT_EQ(ProblemsOf(R"(input x: float[2,15,6,6]
input w: float[12,5,4,4]
y: float[2,12,3,3] = Conv<group=3>(x, w)
)"),
            (Problems{{.pass = ConvolutionPass::kWeightGradient,
                       .storage = cuda::Storage::kFloat,
                       .x = {{5, 6, 6, 6}, {216, 36, 6, 1}},
                       .weight = {{12, 2, 3, 3}, {18, 9, 3, 1}},
                       .y = {{5, 12, 4, 4}, {16, 80, 4, 1}},
                       .stride = {1, 1},
                       .dilation = {1, 1},
                       .pad = {0, 0},
                       .pad_end = {0, 0}}}));
}

TEST(CudaConvolutionLibrary, Keeps16Bits) {
  auto text = std::string("graph \"g\" opset 22\n") + kPlain;
  Problems problems = ProblemsOf(RoundedForGpu(text, DType::kBFloat16));
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0].storage, cuda::Storage::kBFloat16);
}

// x is kept in 16 bits, the weight and y are not.
TEST(CudaConvolutionLibrary, ComputesNoMixture) {
  EXPECT_EQ(ProblemsOf(R"(input x0: float[1,2,4,4]
input w: float[2,2,3,3]
x: float[1,2,4,4] = onnx_fp8.RoundTo<to=16>(x0)
y: float[1,2,2,2] = Conv(x, w)
)"),
            Problems{});
}

TEST(CudaConvolutionLibrary, ComputesNoNegativePads) {
  EXPECT_EQ(ProblemsOf(R"(input x: float[1,2,6,6]
input w: float[2,2,3,3]
y: float[1,2,4,3] = Conv<pads=[0,-1,0,0]>(x, w)
)"),
            Problems{});
}

// Elements at the end that no position reads would make room for another one.
TEST(CudaConvolutionLibrary, ComputesNoResultsThatAreTooSmall) {
  EXPECT_EQ(ProblemsOf(R"(input x: float[1,2,6,6]
input w: float[2,2,3,3]
y: float[1,2,4,3] = Conv<pads=[0,0,0,-1]>(x, w)
)"),
            Problems{});
}

// The third run repeats the second one.
TEST(CudaConvolutionLibrary, IsRecorded) {
  EXPECT_EQ(ProblemsOf(kPlain, 4).size(), 2u);
}

}  // namespace
}  // namespace onnx_fp8
