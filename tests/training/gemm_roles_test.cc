// SPDX-License-Identifier: Apache-2.0
//
// Roles of the products in whole training steps of exported models: there are
// as many weight gradients as forward products, and an input gradient for all
// but the first layers.
#include "graph/fp8/gemm_roles.h"

#include <map>

#include "providers/cpu/cpu_provider.h"
#include "tests/training/corpus_step.h"

namespace onnx_fp8 {
namespace {

struct Counts {
  int forward = 0, dgrad = 0, wgrad = 0;
};

class GemmRoles : public testing::TestWithParam<CorpusFile> {};

TEST_P(GemmRoles, ForwardDgradWgrad) {
  CorpusCase c(GetParam());
  c.options.recipe = ParseRecipe("tensorwise");
  PassRunner runner;
  TrainingModel model = LoadTrainingModel(c.options, runner);
  auto evaluator = MakeCpuEvaluator();
  StepGraph step = BuildStepOf(c, model, StepKind::kTrain, *evaluator, runner);
  std::map<std::string, Counts> counts;
  for (const GemmDecision& d : step.fp8.decisions) {
    if (d.gemm.role == GemmRole::kNone) {
      EXPECT_FALSE(d.fp8) << d.node;
      continue;
    }
    Counts& of_weight = counts[d.fqn];
    of_weight.forward += d.gemm.role == GemmRole::kForward;
    of_weight.dgrad += d.gemm.role == GemmRole::kDgrad;
    of_weight.wgrad += d.gemm.role == GemmRole::kWgrad;
  }
  EXPECT_FALSE(counts.empty());
  int first_layers = 0;
  for (const auto& [weight, n] : counts) {
    EXPECT_GT(n.forward, 0) << weight;
    bool trained = model.graph->Find(weight)->role == Role::kParameter;
    EXPECT_EQ(n.wgrad, trained ? n.forward : 0) << weight;
    EXPECT_LE(n.dgrad, n.forward) << weight;
    first_layers += n.dgrad < n.forward;
  }
  // Few layers read a model's inputs.
  EXPECT_LE(first_layers, 3);
}

INSTANTIATE_TEST_SUITE_P(Corpus, GemmRoles,
                         testing::ValuesIn(WithVariants({"d18", "l17", "d18x",
                                                         "f17", "d20", "d23"})),
                         CorpusTestName);

}  // namespace
}  // namespace onnx_fp8
