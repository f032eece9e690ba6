// SPDX-License-Identifier: Apache-2.0
//
// Every kernel of the CPU beside the op's body, at the ends of the floats. The
// body runs in float and in double; where an op has none, its kernel for
// doubles takes the place of the body.
#include <gtest/gtest.h>

#include "base/check.h"
#include "providers/cpu/cpu_provider.h"
#include "providers/passes/expand_missing.h"
#include "providers/run/executor.h"
#include "tests/providers/extreme_cases.h"

namespace onnx_fp8 {
namespace {

constexpr double kBound = 4e-6;

TensorMap RunHere(const std::shared_ptr<Graph>& graph, TensorMap feeds) {
  for (const Value* input : graph->inputs) {
    feeds[input->name] = ConvertTo(feeds.at(input->name), input->dtype);
  }
  auto cpu = MakeCpuProvider();
  Executor executor(graph, *cpu);
  TensorMap state;
  return executor.Run(feeds, state);
}

class Extremes : public testing::TestWithParam<ExtremeCase> {};

TEST_P(Extremes, AreThoseOfTheBody) {
  std::vector<std::shared_ptr<Graph>> truths = TruthsOf(GetParam());
  std::shared_ptr<Graph> graph = GraphOf(GetParam(), DType::kFloat);
  for (const auto& [kind, feeds] : ExtremeFeeds(GetParam(), *graph)) {
    std::vector<TensorMap> expected;
    for (const auto& truth : truths) expected.push_back(RunHere(truth, feeds));
    EXPECT_EQ(DifferenceFromAll(RunHere(graph, feeds), expected, kBound), "")
        << kind << "\n"
        << GetParam().text;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Extremes, testing::ValuesIn(ExtremeCases()),
                         [](const auto& info) {
                           return NameOfExtreme(info.param, info.index);
                         });

TEST(ExtremesOfTheCpu, HaveACaseForEachKernel) {
  for (const auto& [kernel, reason] : WithoutExtremeCase(CpuKernels())) {
    EXPECT_NE(reason, "") << kernel << " has neither a case nor a reason";
  }
}

}  // namespace
}  // namespace onnx_fp8
