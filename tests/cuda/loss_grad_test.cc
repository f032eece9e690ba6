// SPDX-License-Identifier: Apache-2.0
//
// One kernel computes a loss and its gradient in the place of the scores: its
// results beside two kernels' results on the same device, where each element of
// the gradient has its own bound. rows_test.cc compares both with the CPU.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "base/check.h"
#include "providers/cuda/cuda_provider.h"
#include "providers/passes/join_loss_gradient.h"
#include "providers/passes/store_narrow.h"
#include "providers/run/executor.h"
#include "tests/cuda/beside_cpu.h"
#include "tests/graph/parse.h"
#include "tests/providers/cpu/random_feeds.h"

namespace onnx_fp8 {
namespace {

// Rows of scores, which nothing else reads. $: their type. The labels of more
// than three rows are all 0.
std::shared_ptr<Graph> Step(int64_t rows, int64_t classes,
                            const std::string& nodes) {
  const std::string type = Concat("float[", rows, ",", classes, "]");
  std::string text =
      Concat("graph \"g\" opset 24\ninput x: $\ninput share: float[]\n",
             "const labels: int64[", rows, "]",
             rows == 3 ? Concat(" = {0,-100,", classes - 1, "}") : "",
             "\nscores: $ = Add(x, x)\n", nodes, "output loss\noutput dx\n");
  for (size_t at; (at = text.find('$')) != std::string::npos;) {
    text.replace(at, 1, type);
  }
  return ParseGraph(text);
}

constexpr char kBothNodes[] =
    "loss: float[], lse: float[*] = onnx_fp8.CrossEntropy<ignore_index=-100>"
    "(s, labels)\n"
    "d: $ = onnx_fp8.CrossEntropyGrad<ignore_index=-100>"
    "(share, s, lse, labels)\n";

// The loss, and dx.
std::pair<Tensor, Tensor> LossAndGradient(const std::shared_ptr<Graph>& graph) {
  auto cuda = MakeCudaProvider();
  Executor executor(graph, *cuda);
  TensorMap state, got = executor.Run(RandomFeeds(*graph, {}), state);
  cuda->Synchronize();
  return {cuda->ToHost(got.at("loss")), cuda->ToHost(got.at("dx"))};
}

enum class Round { kNothing, kScores, kGradient, kBoth };

// Each element from one kernel is within its bound of the element from two.
void ExpectThoseOfTwoKernels(int64_t rows, int64_t classes, Round round) {
  SCOPED_TRACE(Concat("round ", static_cast<int>(round)));
  const bool scores = round == Round::kScores || round == Round::kBoth;
  const bool gradient = round == Round::kGradient || round == Round::kBoth;
  std::string nodes = kBothNodes;
  nodes.replace(nodes.find('*'), 1, std::to_string(rows));
  nodes = Concat("s: $ = ", scores ? "onnx_fp8.RoundTo<to=16>" : "Neg",
                 "(scores)\n", nodes,
                 "r: $ = ", gradient ? "onnx_fp8.RoundTo<to=16>" : "Neg",
                 "(d)\ndx: $ = Neg(r)\n");
  auto two = Step(rows, classes, nodes), one = Step(rows, classes, nodes);
  for (const auto& graph : {two, one}) StoreNarrow(*graph, CudaKernels());
  JoinLossGradient(*one, CudaKernels());
  ASSERT_LT(one->nodes().size(), two->nodes().size());
  const auto [loss, dx] = LossAndGradient(one);
  const auto [want_loss, want_dx] = LossAndGradient(two);
  EXPECT_NEAR(DoubleAt(loss, 0), DoubleAt(want_loss, 0),
              1e-6 * DoubleAt(want_loss, 0));
  const double relative = gradient ? 0x1p-7 : 1e-5;
  for (int64_t i = 0; i < dx.size(); ++i) {
    double want = DoubleAt(want_dx, i);
    ASSERT_NEAR(DoubleAt(dx, i), want, relative * std::fabs(want)) << i;
  }
}

class CudaLossGrad : public testing::TestWithParam<int64_t> {};

TEST_P(CudaLossGrad, IsThatOfTwoKernels) {
  for (Round round :
       {Round::kNothing, Round::kScores, Round::kGradient, Round::kBoth}) {
    ExpectThoseOfTwoKernels(3, GetParam(), round);
  }
}

// A block has several of them.
TEST(CudaLossGrads, ManyRows) {
  for (Round round : {Round::kNothing, Round::kBoth}) {
    ExpectThoseOfTwoKernels(2050, 1029, round);
  }
}

// +Inf, -Inf, NaN, and nothing but -Inf. The CPU's gradients have the same.
TEST(CudaLossGrads, StrangeScores) {
  const std::string text = R"(graph "g" opset 24
input x: float[5,4]
input share: float[]
const labels: int64[5] = {0,1,2,3,0}
const zero: float[] = {0}
const one: float[] = {1}
const largest: bool[5,4] = {0,0,0,0, 0,0,1,0, 0,0,0,0, 0,0,0,0, 0,0,0,0}
const least: bool[5,4] = {0,0,0,0, 0,0,0,0, 0,1,0,0, 0,0,0,0, 1,1,1,1}
const none: bool[5,4] = {0,0,0,0, 0,0,0,0, 0,0,0,0, 1,0,0,0, 0,0,0,0}
inf: float[] = Div(one, zero)
less: float[] = Neg(inf)
nan: float[] = Sub(inf, inf)
x1: float[5,4] = Where(largest, inf, x)
x2: float[5,4] = Where(least, less, x1)
x3: float[5,4] = Where(none, nan, x2)
loss: float[], dx: float[5,4] = onnx_fp8.CrossEntropyWithGrad<ignore_index=-100>(share, x3, labels)
)";
  ExpectCpusResults(text, 5e-6);
}

TEST(CudaLossGrads, LabelsAreClasses) {
  const std::string error = ErrorOnGpu(R"(graph "g" opset 24
input x: float[3,4]
input share: float[]
const labels: int64[3] = {0,7,-100}
y: float[], d: float[3,4] = onnx_fp8.CrossEntropyWithGrad<ignore_index=-100>(share, x, labels)
)");
  EXPECT_NE(error.find("expected labels in 0 … 3 or -100 (left out), got 7"),
            std::string::npos)
      << error;
}

// A warp has a row, or a block; rows that begin at any place of a vector; rows
// of which shared memory holds a part: 28672 floats, or 57344 in 16 bits.
INSTANTIATE_TEST_SUITE_P(Classes, CudaLossGrad,
                         testing::Values(1, 3, 40, 1023, 1030, 5003, 60004),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace onnx_fp8
