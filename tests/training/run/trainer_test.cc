// SPDX-License-Identifier: Apache-2.0
#include "onnx_fp8/trainer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "base/check.h"
#include "data/safetensors.h"
#include "onnx_fp8/run_folder.h"
#include "providers/cpu/cpu_provider.h"
#include "tests/support/thread_ranks.h"
#include "tests/training/small_model.h"
#include "training/session/make_session.h"
#include "training/step/step_file.h"

namespace onnx_fp8 {
namespace {

namespace fs = std::filesystem;

// Records the events of a run.
class Journal : public TrainerEvents {
 public:
  void StepPlanned(const std::string& remark) override {
    planned += Concat("(", remark, ") after (", lines, "); ");
  }
  void StepDone(const StepEvent& event) override {
    lines += Concat("step ", event.result.step, "/", event.total, "; ");
    last = event;
    if (event.result.step == fails_at) Fail("the watcher fails");
  }
  void ValidationDone(int64_t step, int64_t total,
                      const Evaluation& evaluation) override {
    lines += Concat("validation ", step, "/", total, "; ");
    EXPECT_EQ(evaluation.samples, 9);
  }
  void CheckpointSaved(int64_t step) override {
    lines += Concat("saved ", step, "; ");
  }
  void SaveFailed(const SaveFailure& failure) override {
    lines += Concat("not saved ", failure.step, " after ", failure.saved_step,
                    failure.goes_on ? ", goes on; " : "; ");
  }
  void Interrupted(int64_t step) override {
    lines += Concat("interrupted ", step, "; ");
  }
  void StoppedEarly(int64_t step, int64_t total,
                    const EarlyStop& early) override {
    lines +=
        Concat("ended ", step, "/", total, ", best ", early.best_step, "; ");
  }
  void SavedBeforeError(int64_t step) override {
    lines += Concat("saved before error ", step, "; ");
  }

  int64_t fails_at = -1;
  std::string lines, planned;
  StepEvent last;
};

class TrainerTest : public testing::Test {
 protected:
  void SetUp() override {
    options_ = Options(WriteMlp(dir_, true), "delayed");
    options_.optimizer.lr = 0;  // only the schedule's lr counts
    Restart();
    WriteSafetensors(dir_ / "d.safetensors", Sources(onnx_fp8::Batch(7, 9)));
    spec_.layout =
        LayOutData(session_->Inputs(), session_->Loss(), {.batch_size = 2});
    files_ = MakeDatasetSpec({dir_ / "d.safetensors"}, spec_.layout);
    validation_.emplace(files_);
    files_.shuffle = files_.drop_last = true;
    data_.emplace(files_);
    spec_.folder = dir_ / "run";
    spec_.steps = 5;
    spec_.lr = 0.1;
  }

  void Restart() { session_ = TrainingSession::Create(options_); }

  // Steps change nothing, so all validations are alike.
  void StandStill() {
    options_ = Options(WriteMlp(dir_, false));
    options_.optimizer.lr = 0;
    spec_.lr = 0;
    Restart();
  }

  TrainerResult Run(const std::function<bool()>& stop = {},
                    const Dataset* validation = nullptr) {
    return RunTraining(*session_, *data_, validation, spec_, journal_, stop);
  }

  // The steps of the lines of metrics that say that the run ends early.
  std::vector<int64_t> EarlyEnds() const {
    std::vector<int64_t> steps;
    std::ifstream file(RunFolder(spec_.folder).metrics());
    for (std::string line; std::getline(file, line);) {
      auto json = nlohmann::json::parse(line);
      if (json.contains("stopped_early")) steps.push_back(json["step"]);
    }
    return steps;
  }

  TempDir dir_;
  SessionOptions options_;
  std::unique_ptr<TrainingSession> session_;
  DatasetSpec files_;
  std::optional<Dataset> data_, validation_;
  TrainerSpec spec_;
  Journal journal_;
};

TEST_F(TrainerTest, TellsWhatItDoesInOrder) {
  spec_.save_every = 2;
  spec_.val_every = 3;
  TrainerResult result = Run({}, &*validation_);
  EXPECT_EQ(journal_.planned, "() after (); ");
  EXPECT_EQ(journal_.lines,
            "step 1/5; step 2/5; saved 2; step 3/5; validation 3/5; step 4/5; "
            "saved 4; step 5/5; validation 5/5; saved 5; ");
  EXPECT_TRUE(result.saved);
  EXPECT_FALSE(result.interrupted);
  EXPECT_EQ(result.steps, 5);
  EXPECT_EQ(result.samples, 10);
  EXPECT_EQ(result.tokens, 0);
  EXPECT_EQ(result.loss, journal_.last.result.loss);
  ASSERT_TRUE(result.validation.has_value());
  EXPECT_TRUE(std::isfinite(result.validation->loss));
  EXPECT_DOUBLE_EQ(journal_.last.lr, 0.1);
  EXPECT_EQ(journal_.last.seconds_left, 0);
  EXPECT_GT(journal_.last.per_second, 0);
}

// Activations of the large batch alone need more than the limit.
TEST_F(TrainerTest, BeginsNoRunWithoutRoomForItsValidation) {
  options_ = Options(WriteMlp(dir_, false));
  options_.memory = "1500000";
  Restart();
  WriteSafetensors(dir_ / "large.safetensors",
                   Sources(onnx_fp8::Batch(7, 20000)));
  files_ = MakeDatasetSpec({dir_ / "large.safetensors"}, spec_.layout);
  files_.batch_size = 20000;
  const Dataset large(files_);
  ExpectError([&] { Run({}, &large); },
              "expected an evaluation that fits into");
  EXPECT_EQ(session_->step(), 0);
  EXPECT_EQ(journal_.lines, "");
  EXPECT_EQ(Run().steps, 5);
}

TEST_F(TrainerTest, GoesOnWhereItWasStopped) {
  TrainerSpec whole = spec_;
  whole.folder = dir_ / "whole";
  RunTraining(*session_, *data_, nullptr, whole);
  TensorMap expected = Weights(*session_, dir_);
  Restart();
  TrainerResult result = Run([&] { return session_->step() == 3; });
  EXPECT_TRUE(result.interrupted);
  EXPECT_TRUE(result.saved);
  EXPECT_EQ(journal_.lines,
            "step 1/5; step 2/5; step 3/5; saved 3; interrupted 3; ");
  Restart();
  ResumeTraining(*session_, *data_, &spec_);
  EXPECT_FALSE(spec_.validate_first);
  EXPECT_EQ(session_->step(), 3);
  EXPECT_EQ(Run().steps, 2);
  ExpectSame(Weights(*session_, dir_), expected);
}

TEST_F(TrainerTest, AnInterruptedValidationComesFirst) {
  spec_.val_every = 2;
  int asked = 0;  // called before steps 1 and 2, then before batches
  Run([&] { return ++asked > 3; }, &*validation_);
  EXPECT_EQ(journal_.lines, "step 1/5; step 2/5; saved 2; interrupted 2; ");
  Restart();
  ResumeTraining(*session_, *data_, &spec_);
  EXPECT_TRUE(spec_.validate_first);
  journal_.lines.clear();
  Run({}, &*validation_);
  EXPECT_EQ(journal_.lines,
            "validation 2/5; step 3/5; step 4/5; validation 4/5; step 5/5; "
            "validation 5/5; saved 5; ");
}

TEST_F(TrainerTest, WritesNothingWithoutAFolder) {
  spec_.folder.clear();
  spec_.save_every = 1;
  auto files = [&] {
    return std::distance(fs::recursive_directory_iterator(dir_.path()), {});
  };
  auto before = files();
  EXPECT_TRUE(Run().saved);
  EXPECT_EQ(files(), before);
  EXPECT_EQ(journal_.lines,
            "step 1/5; step 2/5; step 3/5; step 4/5; step 5/5; ");
}

TEST_F(TrainerTest, SavesTheStepsBeforeAnError) {
  journal_.fails_at = 2;
  ExpectError([&] { Run(); }, "the watcher fails");
  EXPECT_EQ(journal_.lines,
            "step 1/5; step 2/5; saved 2; saved before error 2; ");
  EXPECT_TRUE(RunFolder(spec_.folder).HasCheckpoint());
}

TEST_F(TrainerTest, GoesOnWhereTheDiskRefuses) {
  spec_.save_every = 2;
  WriteText(spec_.folder, "no folder");
  TrainerResult result = Run();
  EXPECT_FALSE(result.saved);
  EXPECT_FALSE(result.save_error.empty());
  EXPECT_EQ(journal_.lines,
            "step 1/5; step 2/5; not saved 2 after 0, goes on; step 3/5; step "
            "4/5; not saved 4 after 0, goes on; step 5/5; not saved 5 after "
            "0; ");
}

TEST_F(TrainerTest, TheNewestCheckpointsStay) {
  spec_.save_every = 1;
  auto kept = [&](const std::string& folder) {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder + "/checkpoints")) {
      names.insert(entry.path().filename().string());
    }
    return names;
  };
  using Names = std::set<std::string>;
  StandStill();
  Run();
  EXPECT_EQ(kept(spec_.folder), (Names{"step_00000004", "step_00000005"}));
  spec_.steps = 8;
  spec_.keep_last = 3;
  Run();
  EXPECT_EQ(kept(spec_.folder),
            (Names{"step_00000006", "step_00000007", "step_00000008"}));
  spec_.steps = 10;
  spec_.keep_last = 1;
  spec_.val_every = 1;
  spec_.save_best = "loss";
  Run({}, &*validation_);
  EXPECT_EQ(kept(spec_.folder), Names{"step_00000010"});
  EXPECT_EQ(kept(BestFolder(spec_.folder)), Names{"step_00000009"});
}

TEST_F(TrainerTest, EndsWhenNoValidationIsBetter) {
  StandStill();
  spec_.val_every = 1;
  spec_.early_stop.patience = 2;
  TrainerResult result = Run({}, &*validation_);
  EXPECT_EQ(journal_.lines,
            "step 1/5; validation 1/5; step 2/5; validation 2/5; step 3/5; "
            "validation 3/5; saved 3; ended 3/5, best 1; ");
  EXPECT_TRUE(result.stopped_early);
  EXPECT_FALSE(result.interrupted);
  EXPECT_EQ(EarlyEnds(), (std::vector<int64_t>{3}));
  // The run stays ended, but more patience goes on with it.
  Restart();
  ResumeTraining(*session_, *data_, &spec_);
  EXPECT_TRUE(spec_.early_stop.Ends());
  EXPECT_EQ(Run({}, &*validation_).steps, 0);
  spec_.early_stop.patience = 4;
  result = Run({}, &*validation_);
  EXPECT_EQ(session_->step(), 5);  // all steps are done: it ends as planned
  EXPECT_FALSE(result.stopped_early);
}

TEST_F(TrainerTest, AResumedRunGoesOnCounting) {
  StandStill();
  spec_.val_every = 1;
  spec_.early_stop.patience = 2;
  // Before and behind a validation that is not better.
  for (const int64_t stopped : {1, 2}) {
    spec_.folder = Concat(dir_ / "run", stopped);
    spec_.early_stop = {.patience = 2};
    Restart();
    const std::string last = Concat("validation ", stopped, "/5; ");
    Run([&] { return journal_.lines.ends_with(last); }, &*validation_);
    Restart();
    ResumeTraining(*session_, *data_, &spec_);
    EXPECT_EQ(spec_.early_stop.not_better, stopped - 1);
    EXPECT_TRUE(Run({}, &*validation_).stopped_early);
    EXPECT_EQ(session_->step(), 3);
  }
}

TEST_F(TrainerTest, EarlyStopFollowsTheNumberOfTheBest) {
  StandStill();
  spec_.val_every = 1;
  spec_.early_stop.patience = 1;
  spec_.save_best = "accuracy";
  Run({}, &*validation_);
  EXPECT_EQ(session_->step(), 2);
  Restart();
  auto notes = session_->Restore(spec_.folder);
  EXPECT_TRUE(notes.contains("early_stop.accuracy"));
  EXPECT_FALSE(notes.contains("early_stop.loss"));
}

// Four batches of two samples: groups of three and of one.
TEST_F(TrainerTest, AnEpochEndsWithASmallerGroup) {
  options_.grad_accum = spec_.grad_accum = 3;
  spec_.steps = 3;
  Restart();
  TrainerResult result = Run();
  EXPECT_EQ(result.samples, 2 * (3 + 1 + 3));
  auto other = TrainingSession::Create(options_);
  Batches batches;
  for (int64_t i = 0; i < 7; ++i) batches.push_back(data_->Batch(i));
  other->Step({batches[0], batches[1], batches[2]}, 0.1);
  other->Step({batches[3]}, 0.1);
  other->Step({batches[4], batches[5], batches[6]}, 0.1);
  ExpectSame(Weights(*session_, dir_), Weights(*other, dir_));
  // A checkpoint that does not say so is of a run whose groups cross epochs.
  Restart();
  ResumeTraining(*session_, *data_, &spec_);
  session_->Save(spec_.folder);
  ExpectError([&] { ResumeTraining(*session_, *data_, &spec_); },
              "was started with groups that cross the ends of epochs, got that "
              "end with an epoch (`grad_accum`)");
}

// The update of the file divides by three.
TEST_F(TrainerTest, GroupsForAStepInAFileCrossTheEndsOfEpochs) {
  options_ = Options(WriteMlp(dir_, false));
  options_.grad_accum = spec_.grad_accum = 3;
  spec_.steps = 3;
  StepFile file(options_);
  file.Write({{"x", {2, kIn}}}, {}, dir_ / "step.onnx");
  SessionOptions of_step;
  of_step.model = dir_ / "step.onnx";
  session_ = TrainingSession::Create(of_step);
  EXPECT_EQ(Run().samples, 2 * 3 * 3);
  auto other = TrainingSession::Create(of_step);
  for (int64_t step = 0; step < 3; ++step) {
    Batches batches;
    for (int64_t i = 0; i < 3; ++i)
      batches.push_back(data_->Batch(step * 3 + i));
    other->Step(batches, 0.1);
  }
  ExpectSame(Weights(*session_, dir_), Weights(*other, dir_));
  session_ = TrainingSession::Create(of_step);
  ResumeTraining(*session_, *data_, &spec_);
  EXPECT_EQ(session_->step(), 3);
}

// The rank with the validation knows better than a count that was restored.
TEST_F(TrainerTest, ARankWithoutAValidationEndsNoRun) {
  StandStill();
  spec_.steps = 2;
  spec_.val_every = 1;
  spec_.validate_first = true;
  const double worse = -std::numeric_limits<double>::infinity();
  spec_.early_stop = {.patience = 3, .best = worse, .not_better = 3};
  RunRanks(2, [&](Communicator& world) {
    const MeshRanks ranks({.dp = 2}, world);
    TrainerSpec spec = spec_;
    spec.folder.clear();
    spec.ranks = &ranks;
    DatasetSpec files = files_;
    files.rank = world.rank();
    files.ranks = world.size();
    auto session = MakeSession(options_, MakeCpuProvider(), &ranks);
    const Dataset* validation = world.rank() == 0 ? &*validation_ : nullptr;
    EXPECT_EQ(RunTraining(*session, Dataset(files), validation, spec).steps, 2);
  });
}

TEST_F(TrainerTest, ResumesWithTheSameBatchesOnly) {
  Run();
  files_.batch_size = 3;
  Dataset other(files_);
  Restart();
  ExpectError([&] { ResumeTraining(*session_, other, &spec_); },
              "was started with batch_size 2, got 3 (`batch_size`)");
}

TEST_F(TrainerTest, FolderKeepsTheSettings) {
  RunFolder folder(spec_.folder);
  EXPECT_FALSE(folder.HasConfig());
  folder.Lock();
  folder.Write(options_.model, {{"lr", {"0.1"}}, {"betas", {"0.9", "0.99"}}});
  EXPECT_FALSE(folder.HoldsRun());
  Run();
  EXPECT_TRUE(folder.HoldsRun());
  RunConfig config = folder.Load();
  EXPECT_EQ(config.settings.at("betas"),
            (std::vector<std::string>{"0.9", "0.99"}));
  EXPECT_EQ(config.crc, FileCrc(options_.model));
  ExpectError([&] { RunFolder(spec_.folder).Lock(); },
              "another process trains in this folder");
}

TEST_F(TrainerTest, FolderKeepsOtherModels) {
  RunFolder folder(spec_.folder);
  folder.Lock();
  folder.Write(options_.model, {}, {}, {}, {{"optimizer", options_.model}});
  const RunConfig config = folder.Load();
  EXPECT_EQ(config.others.size(), 1u);
  const std::string copy = config.others.at("optimizer");
  EXPECT_TRUE(copy.starts_with(spec_.folder + "/optimizer/")) << copy;
  EXPECT_EQ(FileCrc(copy), FileCrc(options_.model));
  std::ofstream(copy, std::ios::app) << '\n';
  ExpectError([&] { folder.Load(); },
              "is not the file that the run was started with");
}

// The lock is the job's: it lasts as long as the last of its processes.
TEST_F(TrainerTest, ProcessesOfAJobShareTheFolder) {
  std::optional<RunFolder> first(spec_.folder), second(spec_.folder);
  first->Lock();
  ExpectError([&] { second->Share(); },
              "another process trains in this folder");
  first->Share();
  second->Share();
  RunFolder other(spec_.folder);
  ExpectError([&] { other.Lock(); }, "another process trains in this folder");
  first.reset();
  ExpectError([&] { other.Lock(); }, "another process trains in this folder");
  second.reset();
  other.Lock();
}

}  // namespace
}  // namespace onnx_fp8
