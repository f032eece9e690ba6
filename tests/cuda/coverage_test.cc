// SPDX-License-Identifier: Apache-2.0
//
// The GPU has a kernel for every op of the training steps and the evaluations
// of all models: an op runs by its body only where it does so on the CPU.
// Nothing runs here.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "providers/cpu/cpu_provider.h"
#include "providers/cuda/cuda_provider.h"
#include "providers/passes/expand_missing.h"
#include "providers/plan/plan.h"
#include "tests/support/corpus.h"
#include "tests/training/corpus_step.h"
#include "training/make_provider.h"
#include "training/step/pipelines.h"

namespace onnx_fp8 {
namespace {

// What is missing, and the files that need it.
using Gaps = std::map<std::string, std::set<std::string>>;

std::string Text(const Gaps& gaps) {
  std::string text;
  for (const auto& [gap, files] : gaps) {
    text += "\n  " + gap + ":";
    for (const std::string& file : files) text += " " + file;
  }
  return text;
}

void FindGaps(const CorpusCase& c, StepKind kind, Gaps* gaps) {
  const std::string file = c.file.name + "/" + c.file.variant;
  PassRunner runner = MakePassRunner(c.options);
  TrainingModel model = LoadTrainingModel(c.options, runner);
  auto evaluator = MakeEvaluator();
  StepGraph step = BuildStepOf(c, model, kind, *evaluator, runner);
  AddReport(step, runner);
  Graph& graph = *step.graph;
  ExpandMissing(graph, CpuKernels(), {}, evaluator.get());
  SessionOptions strict = c.options;
  strict.strict = true;
  FitToKernels(graph, CudaKernels(), strict, *evaluator, runner);
  bool complete = true;
  for (const Node& node : graph.nodes()) {
    if (CudaKernels().Find(node.domain, node.op)) continue;
    complete = false;
    (*gaps)[node.op].insert(file);
  }
  if (!complete) return;
  try {
    MakePlan(graph, CudaKernels(), Device::kProvider);
  } catch (const Error& error) {
    (*gaps)[error.what()].insert(file);
  }
}

Gaps AllGaps(StepKind kind) {
  Gaps gaps;
  for (const CorpusFile& file : CorpusFiles()) {
    FindGaps(CorpusCase(file), kind, &gaps);
  }
  return gaps;
}

TEST(CudaCoverage, TrainingSteps) {
  Gaps gaps = AllGaps(StepKind::kTrain);
  EXPECT_TRUE(gaps.empty()) << Text(gaps);
}

TEST(CudaCoverage, Evaluations) {
  Gaps gaps = AllGaps(StepKind::kEval);
  EXPECT_TRUE(gaps.empty()) << Text(gaps);
}

}  // namespace
}  // namespace onnx_fp8
