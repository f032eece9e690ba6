// SPDX-License-Identifier: Apache-2.0
//
// Ranks that share batches against one process with whole batches. The ranks
// are threads.
#include "training/step/data_parallel.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "collectives/communicator.h"
#include "providers/cpu/cpu_provider.h"
#include "tests/support/thread_ranks.h"
#include "tests/training/files.h"
#include "tests/training/rank_runs.h"
#include "tests/training/small_model.h"
#include "training/session/make_session.h"

namespace onnx_fp8 {
namespace {

void ExpectLosses(const RankRun& one, const RankRun& many) {
  for (size_t i = 0; i < one.steps.size(); ++i) {
    EXPECT_NEAR(many.steps[i].loss, one.steps[i].loss,
                1e-6 * std::fabs(one.steps[i].loss))
        << "step " << i;
    EXPECT_NEAR(many.steps[i].grad_norm, one.steps[i].grad_norm,
                1e-5 * one.steps[i].grad_norm)
        << "step " << i;
  }
}

// 7 samples: shares differ in size. In some steps labels do not count, in one
// step none of a rank.
std::vector<Batches> StepsOf(size_t micro_batches) {
  std::vector<Batches> steps;
  for (uint64_t step = 0; step < 10; ++step) {
    Batches batches;
    for (uint64_t i = 0; i < micro_batches; ++i) {
      TensorMap batch = Batch(10 * step + i, 7);
      int64_t* labels = batch["labels"].data<int64_t>();
      if (step % 3 == 1) labels[6] = labels[2] = -100;
      if (step == 4) labels[0] = labels[1] = labels[2] = -100;
      batches.push_back(batch);
    }
    steps.push_back(batches);
  }
  return steps;
}

TEST(DataParallel, TrainsAsOneProcess) {
  TempDir dir;
  const SessionOptions options = Options(WriteMlp(dir, false));
  const RankRun one = TrainSteps(options, StepsOf(1));
  for (int size : {2, 3}) {
    for (const RankRun& run : TrainRanks(size, options, StepsOf(1))) {
      ExpectLosses(one, run);
    }
  }
}

TEST(DataParallel, MicroBatchesTrainAsOneProcess) {
  TempDir dir;
  SessionOptions options = Options(WriteMlp(dir, false));
  options.grad_accum = 2;
  const RankRun one = TrainSteps(options, StepsOf(2));
  ExpectLosses(one, TrainRanks(2, options, StepsOf(2))[0]);
}

TEST(DataParallel, MicroBatchesByTokensTrainAsOneProcess) {
  TempDir dir;
  SessionOptions options = Options(WriteMlp(dir, false));
  options.grad_accum = 2;
  options.grad_accum_by = "tokens";
  const RankRun one = TrainSteps(options, StepsOf(2));
  ExpectLosses(one, TrainRanks(2, options, StepsOf(2))[0]);
}

// The mean over elements has weights, too.
TEST(DataParallel, MeanOverElements) {
  TempDir dir;
  SessionOptions options = Options(WriteMlp(dir, false));
  options.loss.kind = "mse";
  std::vector<Batches> steps;
  for (uint64_t step = 0; step < 5; ++step) {
    steps.push_back({{{"x", Random({5, kIn}, step)},
                      {"labels", Random({5, kClasses}, step + 50)}}});
  }
  ExpectLosses(TrainSteps(options, steps), TrainRanks(2, options, steps)[0]);
}

// So does the mean over weighted labels, of which a rank may have few.
TEST(DataParallel, MeanOverWeightsOfClasses) {
  TempDir dir;
  SessionOptions options = Options(WriteMlp(dir, false));
  options.loss.class_weights = {0.5f, 2, 0.25f, 3};
  for (double smoothing : {0.0, 0.2}) {
    options.loss.label_smoothing = smoothing;
    const RankRun one = TrainSteps(options, StepsOf(1));
    for (int size : {2, 3}) {
      ExpectLosses(one, TrainRanks(size, options, StepsOf(1))[0]);
    }
  }
}

TEST(DataParallel, MeanOverSamples) {
  TempDir dir;
  SessionOptions options = Options(WriteMlp(dir, false));
  for (const char* kind : {"cross_entropy", "kl_div"}) {
    options.loss.kind = kind;
    std::vector<Batches> steps;
    for (uint64_t step = 0; step < 5; ++step) {
      Tensor share = Random({5, kClasses}, step + 50);
      for (int64_t i = 0; i < share.size(); ++i) {
        share.data<float>()[i] = 0.25f + share.data<float>()[i] / 8;
      }
      steps.push_back({{{"x", Random({5, kIn}, step)}, {"labels", share}}});
    }
    ExpectLosses(TrainSteps(options, steps), TrainRanks(2, options, steps)[0]);
  }
}

// A rank may have no label that counts. If none has one, all skip the step.
TEST(DataParallel, AllRanksSkipAStepWithoutLabels) {
  TempDir dir;
  std::vector<Batches> steps = StepsOf(1);
  steps.resize(3);
  int64_t* labels = steps[1][0]["labels"].data<int64_t>();
  std::fill_n(labels, 7, -100);
  for (const RankRun& run :
       TrainRanks(2, Options(WriteMlp(dir, false)), steps)) {
    EXPECT_FALSE(run.steps[0].skipped);
    EXPECT_TRUE(run.steps[1].skipped);
    EXPECT_EQ(run.steps[1].cause, "no label of this batch counts");
    EXPECT_FALSE(run.steps[2].skipped);
  }
}

// Amaxes cover the whole batch, so the ranks have one set of scales. The scale
// of the model's input does not depend on any rounding.
TEST(DataParallel, DelayedScalesAreThoseOfAllRanks) {
  TempDir dir;
  for (size_t micro_batches : {1, 2}) {
    SessionOptions options = Options(WriteMlp(dir, false), "delayed");
    options.grad_accum = static_cast<int64_t>(micro_batches);
    const auto steps = StepsOf(micro_batches);
    const RankRun one = TrainSteps(options, steps);
    const std::vector<RankRun> runs = TrainRanks(2, options, steps);
    ASSERT_FALSE(one.scales.empty());
    for (size_t i = 0; i < one.scales.size(); ++i) {
      EXPECT_EQ(runs[0].scales[i].scale, runs[1].scales[i].scale);
      if (one.scales[i].key.starts_with("fc.weight/forward/input")) {
        EXPECT_EQ(runs[0].scales[i].scale, one.scales[i].scale);
      }
    }
  }
}

// A number that is not finite on one rank skips the step on all.
TEST(DataParallel, AllRanksSkipAStep) {
  TempDir dir;
  for (const char* recipe : {"off", "delayed"}) {
    std::vector<Batches> steps = StepsOf(1);
    steps.resize(3);
    steps[1][0]["x"].data<float>()[6 * kIn] =
        std::numeric_limits<float>::infinity();
    for (const RankRun& run :
         TrainRanks(2, Options(WriteMlp(dir, false), recipe), steps)) {
      EXPECT_FALSE(run.steps[0].skipped);
      EXPECT_TRUE(run.steps[1].skipped);
      EXPECT_FALSE(run.steps[2].skipped);
    }
  }
}

std::string ErrorOfRanks(const SessionOptions& options,
                         const std::vector<Batches>& steps) {
  try {
    TrainRanks(2, options, steps);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

// The first rank draws what one process draws.
TEST(DataParallel, RanksDropOtherElements) {
  std::vector<uint64_t> draws(3);
  RunRanks(3, [&](Communicator& ranks) {
    draws[static_cast<size_t>(ranks.rank())] = DrawOfRank(7, 5, ranks.rank());
  });
  EXPECT_NE(draws[1], draws[0]);
  EXPECT_NE(draws[2], draws[0]);
  EXPECT_NE(draws[2], draws[1]);
}

TEST(DataParallel, WhatSeveralRanksCannotTrain) {
  TempDir dir;
  SessionOptions options = Options(WriteMlp(dir, true));
  EXPECT_NE(ErrorOfRanks(options, StepsOf(1))
                .find("expected a model without batch statistics for several "
                      "ranks, got BatchNormalization in training"),
            std::string::npos);
}

}  // namespace
}  // namespace onnx_fp8
