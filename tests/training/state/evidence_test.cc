// SPDX-License-Identifier: Apache-2.0
#include "training/state/evidence.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/file.h"
#include "tests/training/files.h"
#include "training/state/checkpoint.h"

namespace onnx_fp8 {
namespace {

StepEvidence Make(const std::string& kind, int64_t step,
                  const std::string& checkpoint) {
  StepEvidence e;
  e.kind = kind;
  e.step = step;
  e.cause = "the loss is not finite";
  e.loss = std::numeric_limits<double>::infinity();
  e.grad_norm = 0.1;
  e.loss_scale = 1024;
  e.batches = {8, 9};
  e.samples = {{3, 1}, {4, 2}};
  e.seed = 7;
  e.checkpoint = checkpoint;
  e.program = "onnx-fp8 0.1.0";
  return e;
}

TEST(Evidence, IsReadAsItWasWritten) {
  TempDir dir;
  EXPECT_TRUE(ReadEvidence(dir.path()).empty());
  WriteEvidence(dir.path(),
                {Make(kSpike, 9, "step_00000008"), Make(kNotFinite, 5, "")});
  const auto read = ReadEvidence(dir.path());
  ASSERT_EQ(read.size(), 2u);
  EXPECT_EQ(read[0].step, 5);
  EXPECT_EQ(read[1].kind, kSpike);
  EXPECT_TRUE(std::isnan(read[1].loss));
  EXPECT_EQ(read[1].grad_norm, 0.1);
  EXPECT_EQ(read[1].loss_scale, 1024);
  EXPECT_EQ(read[1].batches, (std::vector<int64_t>{8, 9}));
  EXPECT_EQ(read[1].samples,
            (std::vector<std::vector<int64_t>>{{3, 1}, {4, 2}}));
  EXPECT_EQ(read[1].seed, 7u);
  EXPECT_EQ(read[1].program, "onnx-fp8 0.1.0");
  EXPECT_EQ(CheckpointsOfEvidence(dir.path()),
            std::set<std::string>{"step_00000008"});
  WriteEvidence(dir.path(), {});
  EXPECT_FALSE(PathExists(EvidenceFile(dir.path())));
  EXPECT_TRUE(CheckpointsOfEvidence(dir.path()).empty());
}

TEST(Evidence, KeepsItsCheckpoint) {
  TempDir dir;
  Checkpoint checkpoint;
  checkpoint.model = "m";
  const auto save = [&](int64_t step) {
    checkpoint.step = step;
    SaveCheckpoint(dir.path(), checkpoint, {.keep = 1});
  };
  const auto has = [&](const char* name) {
    return PathExists(dir.path() + "/checkpoints/" + name);
  };
  save(2);
  EXPECT_EQ(NewestCheckpoint(dir.path()), "step_00000002");
  WriteEvidence(dir.path(), {Make(kNotFinite, 3, "step_00000002")});
  for (int64_t step : {4, 6}) save(step);
  EXPECT_TRUE(has("step_00000002") && has("step_00000006"));
  EXPECT_FALSE(has("step_00000004"));
  EXPECT_EQ(CheckpointBefore(dir.path(), 6), "step_00000002");
  EXPECT_EQ(CheckpointBefore(dir.path(), 7), "step_00000006");
  EXPECT_EQ(CheckpointBefore(dir.path(), 2), "");
  // One checkpoint is read by its folder, too.
  EXPECT_EQ(LoadLatestCheckpoint(dir.path() + "/checkpoints/step_00000002", "m")
                ->step,
            2);
  WriteEvidence(dir.path(), {});
  save(8);
  EXPECT_FALSE(has("step_00000002"));
}

TEST(Evidence, NoCheckpointIsWrittenThatIsNotFinite) {
  TempDir dir;
  Checkpoint checkpoint;
  checkpoint.model = "m";
  const std::vector<float> bad = {1, 2, std::nanf("")};
  checkpoint.state["w"] = Tensor::From<float>({3}, bad);
  checkpoint.step = 1;
  EXPECT_NO_THROW(SaveCheckpoint(dir.path(), checkpoint, {.finite = {"v"}}));
  checkpoint.step = 2;
  try {
    SaveCheckpoint(dir.path(), checkpoint, {.finite = {"w"}});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()),
              "[w] expected finite numbers in a checkpoint, got NaN as element "
              "2 of float[3]");
  }
  EXPECT_EQ(NewestCheckpoint(dir.path()), "step_00000001");
}

}  // namespace
}  // namespace onnx_fp8
