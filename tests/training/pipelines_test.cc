// SPDX-License-Identifier: Apache-2.0
#include "training/pipelines.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "base/check.h"
#include "tests/support/paths.h"
#include "tests/training/corpus_step.h"
#include "training/make_provider.h"

namespace onnx_fp8 {
namespace {

using Names = std::set<std::string>;

class Pipelines : public testing::TestWithParam<CorpusFile> {};

Names NamesOf(const PassRunner& runner) {
  Names names;
  for (const PassSeconds& pass : runner.seconds()) names.insert(pass.name);
  return names;
}

TEST_P(Pipelines, AStepIsTheSameWithoutAPassThatMayBeSkipped) {
  CorpusCase c(GetParam());
  auto whole = TrainingSession::Create(c.options)->Step(c.feeds, 1e-3);
  for (const std::string& name : PassesToSkip()) {
    c.options.skip_passes = {name};
    auto step = TrainingSession::Create(c.options)->Step(c.feeds, 1e-3);
    EXPECT_NEAR(step.loss, whole.loss, 1e-5 * whole.loss) << name;
    EXPECT_NEAR(step.grad_norm, whole.grad_norm, 1e-4 * whole.grad_norm)
        << name;
  }
}

// If texts are written, every pass is verified, not only the last one.
TEST_P(Pipelines, EveryPassLeavesASoundGraph) {
  CorpusCase c(GetParam());
  TempDir dir;
  c.options.recipe = ParseRecipe("delayed");
  for (int64_t accumulated : {1, 2}) {
    c.options.grad_accum = accumulated;
    c.options.dump_passes = dir / std::to_string(accumulated);
    auto session = TrainingSession::Create(c.options);
    std::vector<TensorMap> batches(static_cast<size_t>(accumulated), c.feeds);
    session->Step(batches, 1e-3);
    session->Eval(c.feeds);
    session->Gradients(c.feeds, false);
  }
  EXPECT_EQ(NamesIn(dir / "1"),
            (Names{"01_import", "02_train", "03_eval", "04_gradients"}));
  EXPECT_EQ(NamesIn(dir / "2"), (Names{"01_import", "02_micro", "03_apply",
                                       "04_eval", "05_gradients"}));
}

std::vector<CorpusFile> Fixtures() {
  std::vector<CorpusFile> files = CorpusFiles();
  std::erase_if(files, [](const CorpusFile& file) { return !file.fixture; });
  return files;
}

INSTANTIATE_TEST_SUITE_P(Fixtures, Pipelines, testing::ValuesIn(Fixtures()),
                         CorpusTestName);

TEST(PipelineLists, NoOtherPassMayBeSkipped) {
  SessionOptions options;
  for (const char* name : {"BuildBackward", "Typo", ""}) {
    options.skip_passes = {name};
    ExpectError([&] { MakePassRunner(options); },
                Concat("expected passes that may be skipped "
                       "(SliceBeforeProduct FuseRotary "
                       "FuseAttention FuseActivations FuseNorms FuseLoss "
                       "FuseBiasGradients FoldTranspose MakeKMajor "
                       "StoreNarrow FuseQuantize PadOperands AddToSums), got ",
                       name));
  }
}

TEST(PipelineLists, PassesToSkipAreThoseThatTheListsAllow) {
  CorpusCase c(Fixtures().front());
  PassRunner runner, skipping({.dump = "", .skip = PassesToSkip()});
  for (PassRunner* each : {&runner, &skipping}) {
    TrainingModel model = LoadTrainingModel(c.options, *each);
    auto evaluator = MakeEvaluator();
    StepGraph step = BuildStepOf(c, model, StepKind::kTrain, *evaluator, *each);
    FitToKernels(*step.graph, MakeProvider("cpu")->Kernels(), c.options,
                 *evaluator, *each);
  }
  Names gone = NamesOf(runner);
  for (const std::string& name : NamesOf(skipping)) gone.erase(name);
  std::vector<std::string> listed = PassesToSkip();
  EXPECT_EQ(gone, Names(listed.begin(), listed.end()));
}

}  // namespace
}  // namespace onnx_fp8
