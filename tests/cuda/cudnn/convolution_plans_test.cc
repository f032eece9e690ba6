// SPDX-License-Identifier: Apache-2.0
//
// cuDNN itself compiles convolutions for an H100, on a machine without a GPU.
// no_driver.cc takes the place of the driver. Nothing runs. Most plans use
// engines that were compiled before, which a cuDNN that only compiles at run
// time lacks.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>

#include "providers/cuda/convolution/by_library.h"
#include "providers/cuda/convolution/cudnn_plan.h"
#include "providers/cuda/library/cudnn_library.h"
#include "tests/cuda/cudnn/h100.h"
#include "tests/support/left_out.h"

namespace onnx_fp8::cuda {
namespace {

// A convolution of n images, with the channels of x and y in one group.
struct ConvolutionPlanCase {
  const char* name;
  int64_t n, group, c, m;
  Window::Axes in, kernel;
  int64_t stride = 1, pad = 0, dilation = 1;  // along axes of more elements
};

void PrintTo(const ConvolutionPlanCase& c, std::ostream* out) {
  *out << c.name;
}

ConvolutionSizes SizesOf(const ConvolutionPlanCase& c, bool transposed) {
  ConvolutionSizes z = {.transposed = transposed,
                        .n = c.n,
                        .group = c.group,
                        .c = transposed ? c.m : c.c,
                        .m = transposed ? c.c : c.m,
                        .w = {.rank = c.in[0] > 1 ? 3 : 2}};
  z.w.in = c.in;
  z.w.kernel = c.kernel;
  for (size_t a = 0; a < 3; ++a) {
    if (c.in[a] == 1) continue;
    z.w.stride[a] = c.stride;
    z.w.pad[a] = c.pad;
    z.w.dilation[a] = c.dilation;
    int64_t window = (c.kernel[a] - 1) * c.dilation + 1;
    z.w.out[a] = (c.in[a] + 2 * c.pad - window) / c.stride + 1;
  }
  return z;
}

// As training emits it: axes have changed places, and what no position reads is
// cut off.
ConvolutionSizes WeightGradientOf(const ConvolutionPlanCase& c) {
  ConvolutionSizes z = SizesOf(c, false);
  bool depthwise = c.c == 1 && c.group > 1;
  z.n = depthwise ? 1 : c.c;
  z.c = c.n;
  std::swap(z.w.kernel, z.w.out);
  std::swap(z.w.stride, z.w.dilation);
  for (size_t a = 0; a < 3; ++a) {
    int64_t read = (z.w.kernel[a] - 1) * z.w.dilation[a] +
                   (z.w.out[a] - 1) * z.w.stride[a] + 1 - z.w.pad[a];
    z.w.in[a] = std::min(z.w.in[a], read);
  }
  return z;
}

bool HasCompiledEngines() {
  return OpenCudnn() > 0 &&
         dlopen("libcudnn_engines_precompiled.so.9", RTLD_LAZY) != nullptr;
}

class CudnnConvolutionTest
    : public testing::TestWithParam<ConvolutionPlanCase> {
 protected:
  void SetUp() override {
    if (HasCompiledEngines()) return;
    LeaveOut("convolutions of cuDNN's compiled engines, which are not here");
    GTEST_SKIP();
  }
};

// Copies of the operands and of the result, and parts of sums.
constexpr size_t kMostWorkspace = size_t{16} << 20;

void ExpectPlans(const ConvolutionSizes& z, ConvolutionPass pass) {
  for (Storage storage :
       {Storage::kFloat, Storage::kBFloat16, Storage::kFloat16}) {
    ConvolutionProblem problem = ProblemOf(z, storage);
    EXPECT_EQ(problem.pass, pass);
    EXPECT_LT(ConvolutionPlan(problem, kH100).workspace(), kMostWorkspace);
  }
}

TEST_P(CudnnConvolutionTest, ForwardCompiles) {
  ExpectPlans(SizesOf(GetParam(), false), ConvolutionPass::kForward);
}

TEST_P(CudnnConvolutionTest, InputGradientCompiles) {
  ExpectPlans(SizesOf(GetParam(), true), ConvolutionPass::kInputGradient);
}

TEST_P(CudnnConvolutionTest, WeightGradientCompiles) {
  ExpectPlans(WeightGradientOf(GetParam()), ConvolutionPass::kWeightGradient);
}

// Convolutions of the corpus, and others.
INSTANTIATE_TEST_SUITE_P(
    All, CudnnConvolutionTest,
    testing::Values(
        ConvolutionPlanCase{
            "ResNetStem", 32, 1, 3, 16, {1, 32, 32}, {1, 7, 7}, 2, 3},
        ConvolutionPlanCase{
            "ResNet", 32, 1, 16, 16, {1, 8, 8}, {1, 3, 3}, 1, 1},
        ConvolutionPlanCase{
            "ResNetStride", 32, 1, 32, 64, {1, 8, 8}, {1, 3, 3}, 2, 1},
        ConvolutionPlanCase{
            "ResNetShortcut", 32, 1, 16, 32, {1, 8, 8}, {1, 1, 1}, 2},
        ConvolutionPlanCase{
            "ConvNextStem", 32, 1, 3, 24, {1, 32, 32}, {1, 4, 4}, 4},
        ConvolutionPlanCase{
            "ConvNextDepthwise", 32, 24, 1, 1, {1, 8, 8}, {1, 7, 7}, 1, 3},
        ConvolutionPlanCase{
            "UNetInput", 32, 1, 1, 24, {1, 16, 16}, {1, 3, 3}, 1, 1},
        ConvolutionPlanCase{"UNetUp", 32, 1, 24, 48, {1, 16, 16}, {1, 2, 2}, 2},
        ConvolutionPlanCase{
            "ViTPatches", 32, 1, 3, 96, {1, 32, 32}, {1, 8, 8}, 8},
        ConvolutionPlanCase{
            "Sequence", 32, 1, 40, 24, {1, 1, 50}, {1, 1, 5}, 1, 2},
        ConvolutionPlanCase{"Volume", 2, 1, 16, 16, {8, 8, 8}, {3, 3, 3}, 1, 1},
        ConvolutionPlanCase{
            "Dilated", 2, 1, 16, 16, {1, 20, 20}, {1, 3, 3}, 1, 2, 2}),
    [](const auto& info) { return info.param.name; });

ConvolutionPlanCase Large() {
  return {"", 8, 1, 64, 64, {1, 32, 32}, {1, 3, 3}, 1, 1};
}

// Engines that are compiled at run time keep 16 bits.
TEST(CudnnConvolution, KernelsCompileAtRunTime) {
  if (OpenCudnn() == 0) return;
  for (bool transposed : {false, true}) {
    ConvolutionSizes z = SizesOf(Large(), transposed);
    EXPECT_NO_THROW(ConvolutionPlan(ProblemOf(z, Storage::kBFloat16), kH100));
  }
}

// Engines of tensor cores would round floats to TF32; they copy operands.
TEST(CudnnConvolution, FloatsUseNoTensorCores) {
  if (!HasCompiledEngines()) return;
  for (bool transposed : {false, true}) {
    ConvolutionSizes z = SizesOf(Large(), transposed);
    EXPECT_EQ(ConvolutionPlan(ProblemOf(z, Storage::kFloat), kH100).workspace(),
              0u);
  }
}

TEST(CudnnConvolution, GroupsCompile) {
  if (!HasCompiledEngines()) return;
  ConvolutionPlanCase c = Large();
  c.group = 4;
  c.c = c.m = 16;
  ExpectPlans(SizesOf(c, false), ConvolutionPass::kForward);
  ExpectPlans(SizesOf(c, true), ConvolutionPass::kInputGradient);
}

}  // namespace
}  // namespace onnx_fp8::cuda
