// SPDX-License-Identifier: Apache-2.0
//
// Ranks that divide the layers of each corpus model, against one process.
#include <gtest/gtest.h>

#include <cmath>

#include "providers/cpu/cpu_provider.h"
#include "tests/support/thread_ranks.h"
#include "tests/training/corpus_case.h"
#include "training/session/make_session.h"

namespace onnx_fp8 {
namespace {

class TensorParallelCorpus : public testing::TestWithParam<CorpusFile> {};

std::vector<StepResult> TwoSteps(const CorpusCase& c, const MeshRanks* ranks) {
  auto session = MakeSession(c.options, MakeCpuProvider(), ranks);
  std::vector<StepResult> steps;
  for (int i = 0; i < 2; ++i) steps.push_back(session->Step({c.feeds}, 1e-3));
  return steps;
}

// A model whose layers need whole operands says so. Three ranks divide few
// axes evenly.
void ExpectOneProcess(const CorpusFile& file, int tp) {
  SCOPED_TRACE(Concat(tp, " ranks"));
  CorpusCase c(file);
  const std::vector<StepResult> want = TwoSteps(c, nullptr);
  std::vector<std::vector<StepResult>> results(static_cast<size_t>(tp));
  try {
    RunRanks(tp, [&](Communicator& world) {
      const MeshRanks ranks({.tp = tp}, world);
      results[static_cast<size_t>(world.rank())] = TwoSteps(c, &ranks);
    });
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("of the axis tp can divide"),
              std::string::npos)
        << error.what();
    return;
  }
  const std::vector<StepResult>& got = results[0];
  for (size_t i = 0; i < want.size(); ++i) {
    for (const std::vector<StepResult>& other : results) {
      EXPECT_EQ(other[i].loss, got[i].loss);
    }
    // Ranks drop elements of their parts by numbers of their own.
    if (file.name == "mlp_dropout") continue;
    EXPECT_NEAR(got[i].loss, want[i].loss, 1e-5 * std::abs(want[i].loss));
    EXPECT_NEAR(got[i].grad_norm, want[i].grad_norm, 1e-4 * want[i].grad_norm);
  }
}

TEST_P(TensorParallelCorpus, TrainsAsOneProcess) {
  for (int tp : {2, 3}) ExpectOneProcess(GetParam(), tp);
}

INSTANTIATE_TEST_SUITE_P(Corpus, TensorParallelCorpus,
                         testing::ValuesIn(WithVariants({"d18"})),
                         CorpusTestName);

}  // namespace
}  // namespace onnx_fp8
