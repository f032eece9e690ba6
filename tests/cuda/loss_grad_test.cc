// SPDX-License-Identifier: Apache-2.0
//
// One kernel computes a loss and its gradient in the place of the scores: its
// results beside those of two kernels on the same device, where each element of
// the gradient has its own bound. rows_test.cc compares both with the CPU.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "base/check.h"
#include "providers/cuda/cuda_provider.h"
#include "providers/executor.h"
#include "providers/join_loss_gradient.h"
#include "providers/store_narrow.h"
#include "tests/graph/parse.h"
#include "tests/providers/cpu/random_feeds.h"

namespace onnx_fp8 {
namespace {

// Scores of rows of so many classes, which nothing else reads.
std::shared_ptr<Graph> Step(int64_t classes, const std::string& nodes) {
  const std::string shape = Concat("float[3,", classes, "]");
  const std::string text = Concat(
      "graph \"g\" opset 24\ninput x: ", shape, "\ninput share: float[]\n",
      "const labels: int64[3] = {0,-100,", classes - 1, "}\nscores: ", shape,
      " = Add(x, x)\n", nodes, "output loss\noutput dx\n");
  std::string sized = text;
  for (size_t at; (at = sized.find("$")) != std::string::npos;) {
    sized.replace(at, 1, shape);
  }
  return ParseGraph(sized);
}

constexpr char kFloats[] =
    "loss: float[], lse: float[3] = onnx_fp8.CrossEntropy<ignore_index=-100>"
    "(scores, labels)\n"
    "dx: $ = onnx_fp8.CrossEntropyGrad<ignore_index=-100>"
    "(share, scores, lse, labels)\n";
constexpr char kRounded[] =
    "s: $ = onnx_fp8.RoundTo<to=16>(scores)\n"
    "loss: float[], lse: float[3] = onnx_fp8.CrossEntropy<ignore_index=-100>"
    "(s, labels)\n"
    "d: $ = onnx_fp8.CrossEntropyGrad<ignore_index=-100>"
    "(share, s, lse, labels)\n"
    "r: $ = onnx_fp8.RoundTo<to=16>(d)\n"
    "dx: $ = Neg(r)\n";

// The loss, and dx.
std::pair<Tensor, Tensor> Results(const std::shared_ptr<Graph>& graph) {
  auto cuda = MakeCudaProvider();
  Executor executor(graph, *cuda);
  TensorMap state, got = executor.Run(RandomFeeds(*graph, {}), state);
  cuda->Synchronize();
  return {cuda->ToHost(got.at("loss")), cuda->ToHost(got.at("dx"))};
}

class CudaLossGrad : public testing::TestWithParam<int64_t> {
 protected:
  // Each element of one kernel is within `relative` of that of two.
  void ExpectThoseOfTwoKernels(const char* nodes, double relative) {
    auto two = Step(GetParam(), nodes), one = Step(GetParam(), nodes);
    for (const auto& graph : {two, one}) StoreNarrow(*graph, CudaKernels());
    JoinLossGradient(*one, CudaKernels());
    ASSERT_LT(one->nodes().size(), two->nodes().size());
    const auto [loss, dx] = Results(one);
    const auto [want_loss, want_dx] = Results(two);
    EXPECT_NEAR(DoubleAt(loss, 0), DoubleAt(want_loss, 0),
                1e-6 * DoubleAt(want_loss, 0));
    for (int64_t i = 0; i < dx.size(); ++i) {
      double want = DoubleAt(want_dx, i);
      ASSERT_NEAR(DoubleAt(dx, i), want, relative * std::fabs(want)) << i;
    }
  }
};

TEST_P(CudaLossGrad, IsThatOfTwoKernels) {
  ExpectThoseOfTwoKernels(kFloats, 1e-5);
}

TEST_P(CudaLossGrad, IsThatOfTwoKernelsIn16Bits) {
  ExpectThoseOfTwoKernels(kRounded, 0x1p-7);
}

// A warp has a row, or a block; rows that begin at any place of a vector; rows
// of which shared memory holds a part: 28672 floats, or 57344 in 16 bits.
INSTANTIATE_TEST_SUITE_P(Classes, CudaLossGrad,
                         testing::Values(1, 3, 40, 1023, 1030, 5003, 60004),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace onnx_fp8
