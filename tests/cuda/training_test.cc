// SPDX-License-Identifier: Apache-2.0
//
// Training runs on the GPU beside runs on the CPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "providers/cuda/cuda_provider.h"
#include "tests/support/corpus.h"
#include "tests/training/corpus_case.h"
#include "tests/training/small_model.h"
#include "training/make_provider.h"
#include "training/session/make_session.h"

namespace onnx_fp8 {
namespace {

struct Parameter {
  std::string file, recipe;
  DType dtype;
  int64_t micro;
};

void PrintTo(const Parameter& p, std::ostream* out) {
  *out << p.file << " " << p.recipe << " " << Name(p.dtype) << " " << p.micro;
}

CorpusFile Fixture(const std::string& path) {
  for (const CorpusFile& file : CorpusFiles()) {
    if (file.fixture && file.name + "/" + file.variant == path) return file;
  }
  Fail("no fixture ", path);
}

class CudaTrainingTest : public testing::TestWithParam<Parameter> {};

std::vector<float> Train(TrainingSession& session, const TensorMap& feeds,
                         int64_t micro, int steps) {
  std::vector<float> losses;
  for (int i = 0; i < steps; ++i) {
    StepResult result = session.Step(
        std::vector<TensorMap>(static_cast<size_t>(micro), feeds), 1e-3);
    EXPECT_FALSE(result.skipped) << result.cause;
    losses.push_back(result.loss);
  }
  return losses;
}

// How far two runs on the CPU are apart whose FP8 products are summed in
// another way: as floats, and as a Hopper GPU rounds its sums.
double Band(const SessionOptions& options, const TensorMap& feeds,
            int64_t micro, const std::vector<float>& losses) {
  Apply({.accumulate = "hopper"});
  auto session = TrainingSession::Create(options);
  std::vector<float> others = Train(*session, feeds, micro, 10);
  Apply({});
  double largest = 0;
  for (size_t i = 0; i < losses.size(); ++i) {
    largest = std::max(largest, std::fabs(others[i] / losses[i] - 1.0));
  }
  return 2 * largest + 5e-3;
}

// Ten steps; a checkpoint is restored before the last five.
TEST_P(CudaTrainingTest, LossesAreTheCpus) {
  CorpusCase c(Fixture(GetParam().file));
  SessionOptions options = c.options;
  options.recipe = ParseRecipe(GetParam().recipe);
  options.dtype = GetParam().dtype;
  options.grad_accum = GetParam().micro;
  options.optimizer.clip_norm = 1;
  TempDir dir;
  auto on_cpu = TrainingSession::Create(options);
  std::vector<float> want = Train(*on_cpu, c.feeds, GetParam().micro, 10);
  std::vector<float> got;
  {
    auto session = MakeSession(options, MakeCudaProvider());
    got = Train(*session, c.feeds, GetParam().micro, 5);
    session->Save(dir / "run");
  }
  auto session = MakeSession(options, MakeCudaProvider());
  session->Restore(dir / "run");
  for (float loss : Train(*session, c.feeds, GetParam().micro, 5)) {
    got.push_back(loss);
  }
  bool exact = GetParam().recipe == "off" && GetParam().dtype == DType::kFloat;
  double band = exact ? 2e-5 : Band(options, c.feeds, GetParam().micro, want);
  EXPECT_LT(band, 0.06);
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_NEAR(got[i], want[i], band * std::fabs(want[i])) << "step " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, CudaTrainingTest,
    testing::Values(Parameter{"nanogpt/d18", "off", DType::kFloat, 1},
                    Parameter{"nanogpt/d18", "tensorwise", DType::kFloat, 1},
                    Parameter{"nanogpt/l17", "delayed", DType::kBFloat16, 2},
                    Parameter{"llama/d18", "off", DType::kFloat, 1},
                    Parameter{"llama/d18", "tensorwise", DType::kFloat, 2},
                    Parameter{"llama/d18", "rowwise", DType::kFloat, 1},
                    Parameter{"llama/d18", "rowwise", DType::kBFloat16, 1},
                    Parameter{"llama/l17", "tensorwise", DType::kBFloat16, 1},
                    Parameter{"llama/l17", "blockwise", DType::kFloat, 1},
                    Parameter{"llama/l17", "mxfp8", DType::kFloat, 1},
                    Parameter{"vit/d18", "off", DType::kFloat, 1},
                    Parameter{"vit/l17", "delayed", DType::kFloat, 1},
                    Parameter{"nanogpt/d18", "off", DType::kBFloat16, 1}));

// Kernels that also quantize their results change no bit of a step.
TEST(CudaFusedTraining, LossesAreThoseOfKernelsApart) {
  for (const Parameter& p :
       {Parameter{"nanogpt/l17", "delayed", DType::kBFloat16, 1},
        Parameter{"llama/l17", "delayed", DType::kBFloat16, 1},
        Parameter{"llama/l17", "rowwise", DType::kBFloat16, 1},
        Parameter{"vit/l17", "delayed", DType::kFloat, 1}}) {
    CorpusCase c(Fixture(p.file));
    c.options.recipe = ParseRecipe(p.recipe);
    c.options.dtype = p.dtype;
    std::vector<std::vector<float>> losses;
    for (bool apart : {true, false}) {
      if (apart) c.options.skip_passes = {"FuseQuantize"};
      auto session = MakeSession(c.options, MakeCudaProvider());
      losses.push_back(Train(*session, c.feeds, p.micro, 3));
      c.options.skip_passes = {};
    }
    EXPECT_EQ(losses[1], losses[0]) << p.file;
  }
}

// Relative to the largest number of `want`.
double Distance(const Tensor& want, const Tensor& got) {
  double largest = 0, most = 0;
  for (int64_t i = 0; i < want.size(); ++i) {
    largest = std::max(largest, std::fabs(DoubleAt(want, i)));
    most = std::max(most, std::fabs(DoubleAt(want, i) - DoubleAt(got, i)));
  }
  return largest > 0 ? most / largest : most;
}

// Kernels of the GPU turn codes, pad them, and store scales as bytes: tensors
// that are kept have the form of the CPU's all the same. Weights of the first
// step are the same on both, so are their codes. A step without them has the
// same losses.
TEST(CudaDump, HasTheTensorsOfTheCpu) {
  for (const char* recipe :
       {"off", "tensorwise", "delayed", "rowwise", "blockwise", "mxfp8"}) {
    CorpusCase c(Fixture("nanogpt/d18"));
    c.options.recipe = ParseRecipe(recipe);
    auto plain = MakeSession(c.options, MakeCudaProvider());
    const std::vector<float> losses = Train(*plain, c.feeds, 1, 2);
    c.options.dump = {"*"};
    c.options.at_steps = {"1"};
    auto on_gpu = MakeSession(c.options, MakeCudaProvider());
    auto on_cpu = TrainingSession::Create(c.options);
    const std::vector<TensorMap> batch = {c.feeds};
    const StepResult first = on_gpu->Step(batch, 1e-3);
    const StepResult second = on_gpu->Step(batch, 1e-3);
    EXPECT_EQ((std::vector{first.loss, second.loss}), losses) << recipe;
    EXPECT_TRUE(second.dumps.empty());
    ASSERT_EQ(first.dumps.size(), 1u) << recipe;
    const Dump got = first.dumps[0];
    const Dump want = on_cpu->Step(batch, 1e-3).dumps.at(0);
    ASSERT_EQ(got.size(), want.size()) << recipe;
    for (size_t i = 0; i < want.size(); ++i) {
      const DumpedTensor &a = want[i], &b = got[i];
      const std::string what =
          Concat(recipe, " ", a.fqn, " ", a.gemm, " ", a.operand);
      EXPECT_EQ(Concat(recipe, " ", b.fqn, " ", b.gemm, " ", b.operand), what);
      EXPECT_LT(Distance(a.value, b.value), 0.1) << what;
      ASSERT_EQ(a.has_codes(), b.has_codes()) << what;
      if (!a.has_codes()) continue;
      EXPECT_EQ(b.codes.shape(), a.codes.shape()) << what;
      EXPECT_EQ(b.scale.shape(), a.scale.shape()) << what;
      // The GPU's codes stand for its own numbers, within half a step.
      const double half_step = b.codes.dtype() == DType::kE5M2 ? 0.125 : 0.0625;
      EXPECT_LE(Distance(b.value, Decoded(b)), half_step) << what;
      if (a.operand != "weight") continue;
      EXPECT_TRUE(Identical(a.value, b.value)) << what;
      EXPECT_TRUE(Identical(a.codes, b.codes)) << what;
      EXPECT_TRUE(Identical(a.scale, b.scale)) << what;
    }
  }
}

}  // namespace
}  // namespace onnx_fp8
