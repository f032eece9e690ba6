// SPDX-License-Identifier: Apache-2.0
//
// Sessions that clip by the norm of the step before.
#include <algorithm>
#include <memory>
#include <vector>

#include "optimizers/optimizer.h"
#include "tests/training/small_model.h"

namespace onnx_fp8 {
namespace {

constexpr double kClipNorm = 0.1, kSgdRate = 0.1;

SessionOptions ClippedSgd(const std::string& model, int64_t micro_batches) {
  SessionOptions options = Options(model);
  options.optimizer.kind = "sgd";
  options.optimizer.clip_norm = kClipNorm;
  options.optimizer.clip_previous = true;
  options.grad_accum = micro_batches;
  return options;
}

Batches MicroBatches(int64_t step, int64_t count) {
  Batches batches;
  for (int64_t i = 0; i < count; ++i) {
    batches.push_back(Batch(static_cast<uint64_t>(10 * step + i)));
  }
  return batches;
}

// SGD moves a weight by rate · factor · gradient: a run without clipping does
// the same at the rate times the factor.
TEST(ClipPrevious, IsARateOfSgd) {
  TempDir dir;
  const std::string model = WriteMlp(dir, false);
  for (const auto& [micro_batches, releases] :
       {std::pair{1, false}, std::pair{1, true}, std::pair{2, false}}) {
    SCOPED_TRACE(Concat(micro_batches, " micro-batches, ", releases));
    SessionOptions options = ClippedSgd(model, micro_batches);
    options.optimizer.release_gradients = releases;
    auto clipped = TrainingSession::Create(options);
    options.optimizer.clip_norm = 0;
    options.optimizer.clip_previous = false;
    auto plain = TrainingSession::Create(options);
    double factor = 1;
    for (int64_t step = 0; step < 4; ++step) {
      const Batches batches = MicroBatches(step, micro_batches);
      const StepResult got = clipped->Step(batches, kSgdRate);
      const StepResult want = plain->Step(batches, kSgdRate * factor);
      EXPECT_NEAR(got.loss, want.loss, 1e-5 * want.loss) << "step " << step;
      EXPECT_NEAR(got.grad_norm, want.grad_norm, 1e-5 * want.grad_norm);
      factor = std::min(1.0, kClipNorm / (want.grad_norm + 1e-6));
      EXPECT_LT(factor, 0.9);
    }
  }
}

TEST(ClipPrevious, AResumedRunKnowsTheNorm) {
  TempDir dir;
  const std::string model = WriteMlp(dir, false);
  for (int64_t micro_batches : {1, 2}) {
    const SessionOptions options = ClippedSgd(model, micro_batches);
    auto whole = TrainingSession::Create(options);
    auto resumed = TrainingSession::Create(options);
    for (int64_t step = 0; step < 4; ++step) {
      if (step == 2) {
        const std::string run = dir / Concat("run", micro_batches);
        resumed->Save(run);
        resumed = TrainingSession::Create(options);
        resumed->Restore(run);
      }
      const Batches batches = MicroBatches(step, micro_batches);
      const StepResult want = whole->Step(batches, kSgdRate);
      const StepResult got = resumed->Step(batches, kSgdRate);
      EXPECT_EQ(got.loss, want.loss) << "step " << step;
      EXPECT_EQ(got.grad_norm, want.grad_norm) << "step " << step;
      EXPECT_GT(want.grad_norm, 2 * kClipNorm);
    }
    ExpectSame(Weights(*resumed, dir), Weights(*whole, dir));
  }
}

// A norm of long ago clips nothing later.
TEST(ClipPrevious, ARunThatGoesOnWithoutItForgetsTheNorm) {
  TempDir dir;
  SessionOptions options = ClippedSgd(WriteMlp(dir, false), 1);
  auto clipped = TrainingSession::Create(options);
  clipped->Step(MicroBatches(0, 1), kSgdRate);
  EXPECT_TRUE(clipped->State().tensors.contains(kPreviousNorm));
  clipped->Save(dir / "run");
  options.optimizer.clip_previous = false;
  auto plain = TrainingSession::Create(options);
  plain->Restore(dir / "run");
  EXPECT_FALSE(plain->State().tensors.contains(kPreviousNorm));
}

}  // namespace
}  // namespace onnx_fp8
