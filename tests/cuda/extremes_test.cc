// SPDX-License-Identifier: Apache-2.0
//
// Every kernel of the GPU at the ends of the floats, beside the op's body and
// the CPU's kernel.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/check.h"
#include "providers/cpu/cpu_provider.h"
#include "providers/cuda/cuda_provider.h"
#include "providers/run/executor.h"
#include "tests/providers/extreme_cases.h"

namespace onnx_fp8 {
namespace {

constexpr double kBound = 5e-6;

// Feeds that the GPU leaves out, all those whose name contains `kind`, and why.
struct LeftOut {
  std::string ops, kind, reason;
};

constexpr char kSums[] = "sums are of floats, and overflow";

const std::vector<LeftOut>& FeedsLeftOut() {
  static const std::string sums =
      " ReduceMean ReduceLogSum ReduceProd GlobalAveragePool "
      "LayerNormalization onnx_fp8.AddLayerNorm onnx_fp8.RMSNormGrad "
      "onnx_fp8.AddRMSNormGrad ";
  static const std::vector<LeftOut> list = {
      {sums, "large", kSums},
      {sums, "lowest", kSums},
      {" Hardmax ", "nan", "any element may be the largest beside NaN"},
      {" Conv ", "all_hidden", "padding is not multiplied by infinity"},
  };
  return list;
}

bool IsLeftOut(const std::string& op, const std::string& kind) {
  return std::ranges::any_of(FeedsLeftOut(), [&](const LeftOut& row) {
    return row.ops.find(" " + op + " ") != std::string::npos &&
           kind.find(row.kind) != std::string::npos;
  });
}

TensorMap RunOn(ExecutionProvider& provider,
                const std::shared_ptr<Graph>& graph, TensorMap feeds) {
  for (const Value* input : graph->inputs) {
    feeds[input->name] = ConvertTo(feeds.at(input->name), input->dtype);
  }
  Executor executor(graph, provider);
  TensorMap state, results = executor.Run(feeds, state);
  provider.Synchronize();
  for (auto& [name, tensor] : results) tensor = provider.ToHost(tensor);
  return results;
}

class CudaExtremes : public testing::TestWithParam<ExtremeCase> {};

TEST_P(CudaExtremes, AreThoseOfTheBodyOrTheCpu) {
  auto cpu = MakeCpuProvider();
  auto cuda = MakeCudaProvider();
  std::vector<std::shared_ptr<Graph>> truths = TruthsOf(GetParam());
  std::shared_ptr<Graph> graph = GraphOf(GetParam(), DType::kFloat);
  for (const auto& [kind, feeds] : ExtremeFeeds(GetParam(), *graph)) {
    if (IsLeftOut(GetParam().op, kind)) continue;
    std::vector<TensorMap> expected = {RunOn(*cpu, graph, feeds)};
    for (const auto& truth : truths) {
      expected.push_back(RunOn(*cpu, truth, feeds));
    }
    EXPECT_EQ(DifferenceFromAll(RunOn(*cuda, graph, feeds), expected, kBound),
              "")
        << kind << "\n"
        << GetParam().text;
  }
}

std::vector<ExtremeCase> CasesOfTheGpu() {
  std::vector<ExtremeCase> cases;
  for (const ExtremeCase& c : ExtremeCases()) {
    auto names = CudaKernels().Names();
    if (std::ranges::count(names, c.op) > 0) cases.push_back(c);
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(All, CudaExtremes, testing::ValuesIn(CasesOfTheGpu()),
                         [](const auto& info) {
                           return NameOfExtreme(info.param, info.index);
                         });

TEST(ExtremesOfTheGpu, HaveACaseForEachKernel) {
  for (const auto& [kernel, reason] : WithoutExtremeCase(CudaKernels())) {
    EXPECT_NE(reason, "") << kernel << " has neither a case nor a reason";
  }
}

}  // namespace
}  // namespace onnx_fp8
