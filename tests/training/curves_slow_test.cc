// SPDX-License-Identifier: Apache-2.0
//
// Loss curves of 20 SGD and AdamW steps against PyTorch's.
#include <cmath>

#include "tests/training/corpus_case.h"

namespace onnx_fp8 {
namespace {

constexpr double kTolerance = 1e-4;

void FollowCurve(CorpusCase& c, const std::string& optimizer) {
  const auto& reference = c.reference[optimizer];
  c.options.optimizer.kind =
      optimizer == "sgd" ? OptimizerKind::kSgd : OptimizerKind::kAdamW;
  if (optimizer == "adamw") {
    c.options.optimizer.weight_decay = reference["weight_decay"].get<double>();
    c.options.optimizer.beta1 = reference["betas"][0];
    c.options.optimizer.beta2 = reference["betas"][1];
    c.options.optimizer.eps = reference["eps"];
  }
  auto session = TrainingSession::Create(c.options);
  std::vector<double> want = ToDoubles(c.arrays.at(optimizer + ".losses"));
  double tolerance = std::max(
      kTolerance, 10 * reference["fp64_max_loss_rel_diff"].get<double>());
  for (size_t i = 0; i + 1 < want.size(); ++i) {
    StepResult result = session->Step(c.feeds, reference["lr"]);
    EXPECT_FALSE(result.skipped);
    EXPECT_LE(std::fabs(result.loss - want[i]), tolerance * std::fabs(want[i]))
        << optimizer << " step " << i;
  }
  // Not by Eval: BatchNorm stays in training mode, as in the reference.
  float last = session->Gradients(c.feeds, false).loss;
  EXPECT_LE(std::fabs(last - want.back()), tolerance * std::fabs(want.back()));
}

class Curve : public testing::TestWithParam<CorpusFile> {};

TEST_P(Curve, Sgd) {
  CorpusCase c(GetParam());
  FollowCurve(c, "sgd");
}

TEST_P(Curve, AdamW) {
  CorpusCase c(GetParam());
  FollowCurve(c, "adamw");
}

// All but the model whose Dropout the reference has turned off and resnet18,
// whose SGD curve is chaos: weights changed by 1e-7 leave PyTorch's curve at
// step 4, at step 13 or not at all.
std::vector<CorpusFile> Files() {
  auto files = WithVariants({"d18", "l17", "d18x", "f17"});
  std::erase_if(files, [](const CorpusFile& file) {
    return file.name == "mlp_dropout" || file.name == "resnet18_w16";
  });
  return files;
}

INSTANTIATE_TEST_SUITE_P(All, Curve, testing::ValuesIn(Files()),
                         CorpusTestName);

}  // namespace
}  // namespace onnx_fp8
