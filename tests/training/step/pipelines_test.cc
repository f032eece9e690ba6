// SPDX-License-Identifier: Apache-2.0
#include "training/step/pipelines.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "base/check.h"
#include "graph/onnx/onnx_io.h"
#include "graph/passes/specialize.h"
#include "graph/print.h"
#include "providers/passes/expand_missing.h"
#include "providers/run/executor.h"
#include "tests/providers/cpu/run_node.h"
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

// The model of the case for the shapes of its feeds, as `run` takes it.
std::shared_ptr<Graph> ForwardOf(const CorpusCase& c) {
  auto model = ReadModel(c.file.model());
  std::map<std::string, Shape> shapes;
  for (const Value* input : model->inputs) {
    shapes[input->name] = c.feeds.at(input->name).shape();
  }
  return Specialize(*model, shapes, *MakeEvaluator());
}

TensorMap Outputs(std::shared_ptr<Graph> graph, const CorpusCase& c) {
  auto cpu = MakeProvider("cpu");
  ExpandMissing(*graph, cpu->Kernels());
  TensorMap feeds, state;
  for (const Value* input : graph->inputs) {
    feeds[input->name] = c.feeds.at(input->name);
  }
  return Executor(graph, *cpu).Run(feeds, state);
}

Names OpsOf(const Graph& graph) {
  Names ops;
  for (const Node& node : graph.nodes()) ops.insert(node.op);
  return ops;
}

TEST_P(Pipelines, AForwardGivesTheSameFused) {
  CorpusCase c(GetParam());
  auto plain = ForwardOf(c), fused = ForwardOf(c);
  PassRunner runner;
  FuseForward(*fused, runner);
  for (const Value* value : fused->Initializers()) {
    EXPECT_EQ(value->role, Role::kNone) << value->name;
  }
  const std::map<std::string, Names> expected = {
      {"mlp", {"Gemm"}},
      {"nanogpt", {"AttentionPacked", "Gemm"}},
      {"vit", {"Attention", "Gelu", "Gemm"}},
      {"llama", {"AddRMSNorm", "Attention", "Gemm", "Rotary", "SwiGLU"}}};
  Names ops = OpsOf(*fused);
  for (const std::string& op : expected.at(c.file.name)) {
    EXPECT_TRUE(ops.contains(op)) << op;
  }
  EXPECT_FALSE(ops.contains("Softmax") || ops.contains("MatMul"));
  TensorMap want = Outputs(plain, c), got = Outputs(fused, c);
  for (const auto& [name, y] : want) {
    EXPECT_LT(LargestDifference(y, got.at(name)), 2e-5) << name;
  }
}

// It is fused, and computes the bits of a session.
TEST_P(Pipelines, AStepIsLeftAlone) {
  CorpusCase c(GetParam());
  PassRunner runner;
  TrainingModel model = LoadTrainingModel(c.options, runner);
  auto evaluator = MakeEvaluator();
  StepGraph step = BuildStepOf(c, model, StepKind::kTrain, *evaluator, runner);
  std::string before = Print(*step.graph);
  FuseForward(*step.graph, runner);
  EXPECT_EQ(Print(*step.graph), before);
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
    ExpectError(
        [&] { MakePassRunner(options); },
        Concat("expected passes that may be skipped "
               "(SliceBeforeProduct FuseRotary "
               "FuseAttention KeepRowOrder FuseActivations FuseNorms FuseLoss "
               "FuseBiasGradients FoldTranspose JoinMasters JoinMoments "
               "MakeKMajor StoreMxScales StoreNarrow PadOperands FuseQuantize "
               "JoinOrientations FuseColumnSums AddToSums JoinLossGradient "
               "JoinWeightCodes), "
               "got ",
               name));
  }
}

TEST(PipelineLists, PassesToSkipAreThoseThatTheListsAllow) {
  CorpusCase c(Fixtures().front());
  PassRunner runner, skipping({.dump = "", .skip = PassesToSkip()});
  for (PassRunner* each : {&runner, &skipping}) {
    TrainingModel model = LoadTrainingModel(c.options, *each);
    auto evaluator = MakeEvaluator();
    auto provider = MakeProvider("cpu");
    StepGraph step = BuildStepOf(c, model, StepKind::kTrain, *evaluator, *each);
    FitToKernels(*step.graph, provider->Kernels(), c.options, *evaluator,
                 *each);
    StepSource source = MakeStepSource(c.options, model, *evaluator, *each);
    source.primary_weights = true;
    KeepPrimaryWeights(source, provider->Kernels(), &step);
  }
  Names gone = NamesOf(runner);
  for (const std::string& name : NamesOf(skipping)) gone.erase(name);
  std::vector<std::string> listed = PassesToSkip();
  EXPECT_EQ(gone, Names(listed.begin(), listed.end()));
}

}  // namespace
}  // namespace onnx_fp8
