// SPDX-License-Identifier: Apache-2.0
#include "training/state/checkpoint.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <csignal>
#include <filesystem>
#include <set>

#include "tests/training/files.h"

namespace onnx_fp8 {
namespace {

constexpr char kModel[] = "model-1";

Checkpoint Make(int64_t step, float value) {
  Checkpoint c{.step = step, .seed = ~uint64_t{0}, .next_batch = 3 * step};
  c.model = kModel;
  c.notes = {{"recipe", "delayed"}, {"text", "ü \"x\"\n"}};
  c.state = {{"w", Tensor::From<float>({2}, std::vector{value, -value})},
             {"optimizer.step", Tensor::Scalar(step)},
             {"empty", Tensor::Zeros(DType::kFloat, {0, 4})}};
  return c;
}

void ExpectSame(const Checkpoint& got, const Checkpoint& want) {
  EXPECT_EQ(got.step, want.step);
  EXPECT_EQ(got.seed, want.seed);
  EXPECT_EQ(got.next_batch, want.next_batch);
  EXPECT_EQ(got.model, want.model);
  EXPECT_EQ(got.notes, want.notes);
  ASSERT_EQ(got.state.size(), want.state.size());
  for (const auto& [name, tensor] : want.state) {
    EXPECT_TRUE(Identical(got.state.at(name), tensor)) << name;
  }
}

std::string LoadError(const std::string& dir) {
  return ErrorOf([&] { LoadLatestCheckpoint(dir, kModel); });
}

TEST(Checkpoint, ReturnsWhatWasSaved) {
  TempDir dir;
  std::string run = dir / "new/run";
  EXPECT_FALSE(HoldsRun(run));
  EXPECT_FALSE(LoadLatestCheckpoint(run, kModel).has_value());
  std::string folder = SaveCheckpoint(run, Make(120, 1.5f));
  EXPECT_EQ(folder, run + "/checkpoints/step_00000120");
  EXPECT_EQ(ReadText(run + "/latest"), "step_00000120\n");
  EXPECT_TRUE(HoldsRun(run));
  ExpectSame(*LoadLatestCheckpoint(run, kModel), Make(120, 1.5f));
  EXPECT_EQ(NamesIn(folder),
            (std::set<std::string>{"manifest.json", "state.safetensors"}));
}

TEST(Checkpoint, EqualStateGivesEqualBytes) {
  TempDir dir;
  SaveCheckpoint(dir / "a", Make(1, 1));
  SaveCheckpoint(dir / "b", Make(1, 1));
  std::string file = "/checkpoints/step_00000001/state.safetensors";
  EXPECT_EQ(ReadText(dir.path() + "/a" + file),
            ReadText(dir.path() + "/b" + file));
}

TEST(Checkpoint, KeepsTheLastOnes) {
  TempDir dir;
  for (int64_t step : {1, 2, 3, 4}) {
    SaveCheckpoint(dir.path(), Make(step, 1), {.keep = 2});
  }
  EXPECT_EQ(NamesIn(dir / "checkpoints"),
            (std::set<std::string>{"step_00000003", "step_00000004"}));
  SaveCheckpoint(dir.path(), Make(5, 1), {.keep = 1});
  EXPECT_EQ(NamesIn(dir / "checkpoints"),
            (std::set<std::string>{"step_00000005"}));
  ExpectError([&] { SaveCheckpoint(dir.path(), Make(6, 1), {.keep = 0}); },
              "keep 0");
}

// After a power cut a name must not stand for data that never reached the disk.
TEST(Checkpoint, WhatANameStandsForIsSyncedBeforeIt) {
  TempDir dir;
  const std::string process = TemporaryName("");
  std::vector<std::string> done;
  SaveOptions options;
  options.hook = [&](std::string operation) {
    if (!operation.starts_with("sync") && !operation.starts_with("rename")) {
      return;
    }
    if (size_t at = operation.find(process); at != std::string::npos) {
      operation.replace(at, process.size(), ".tmp");
    }
    size_t at = operation.find(dir.path());
    done.push_back(operation.erase(at, dir.path().size()));
  };
  SaveCheckpoint(dir.path(), Make(1, 1), options);
  EXPECT_EQ(done, (std::vector<std::string>{
                      "sync ",  // holds the name of the new checkpoints/
                      "sync /checkpoints/step_00000001.tmp/state.safetensors",
                      "sync /checkpoints/step_00000001.tmp/manifest.json",
                      "sync /checkpoints/step_00000001.tmp",
                      "rename /checkpoints/step_00000001",
                      "sync /checkpoints",
                      "sync /latest.tmp",
                      "rename /latest",
                      "sync ",
                  }));
}

// A kill in the midst of a removal must not leave half a checkpoint under a
// checkpoint's name.
TEST(Checkpoint, AnOldOneLosesItsNameBeforeItIsRemoved) {
  TempDir dir;
  SaveCheckpoint(dir.path(), Make(1, 1));
  SaveOptions options;
  options.keep = 1;
  int removals = 0;
  options.hook = [&](const std::string& operation) {
    if (!operation.starts_with("remove ")) return;
    ++removals;
    EXPECT_TRUE(IsTemporaryName(operation)) << operation;
  };
  SaveCheckpoint(dir.path(), Make(2, 2), options);
  EXPECT_EQ(removals, 1);
}

TEST(Checkpoint, AStepCanBeSavedAgain) {
  TempDir dir;
  for (float value : {1.0f, 2.0f, 3.0f}) {
    SaveCheckpoint(dir.path(), Make(7, value));
    ExpectSame(*LoadLatestCheckpoint(dir.path(), kModel), Make(7, value));
  }
  EXPECT_EQ(NamesIn(dir / "checkpoints"),
            (std::set<std::string>{"step_00000007_2", "step_00000007_3"}));
}

TEST(Checkpoint, ALoadedStateOutlivesItsFile) {
  TempDir dir;
  SaveCheckpoint(dir.path(), Make(1, 1), {.keep = 1});
  auto loaded = LoadLatestCheckpoint(dir.path(), kModel);
  SaveCheckpoint(dir.path(), Make(2, 2), {.keep = 1});
  ExpectSame(*loaded, Make(1, 1));
  loaded->state.at("w").data<float>()[0] = 9;
  ExpectSame(*LoadLatestCheckpoint(dir.path(), kModel), Make(2, 2));
}

class DamagedCheckpoint : public testing::Test {
 protected:
  void SetUp() override {
    SaveCheckpoint(dir_.path(), Make(1, 1));
    folder_ = SaveCheckpoint(dir_.path(), Make(2, 2));
  }
  // The error after `from` was replaced by `to` in a file of the newest
  // checkpoint.
  std::string ErrorWith(const std::string& file, const std::string& from,
                        const std::string& to) {
    std::string path = folder_ + "/" + file;
    std::string bytes = ReadText(path);
    size_t at = bytes.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    std::string edited = bytes;
    WriteText(path, edited.replace(at, from.size(), to));
    std::string error = LoadError(dir_.path());
    WriteText(path, bytes);
    EXPECT_EQ(LoadError(dir_.path()), "");
    return error;
  }
  TempDir dir_;
  std::string folder_;
};

TEST_F(DamagedCheckpoint, IsRefusedWithReasonFileAndWayOut) {
  std::string two("\0\0\0\x40", 4);  // 2.0f
  std::string error = ErrorWith("state.safetensors", two, "\1\1\1\1");
  EXPECT_NE(error.find("step_00000002/state.safetensors] tensor \"w\" was "
                       "damaged or edited"),
            std::string::npos)
      << error;
  EXPECT_NE(error.find("; to resume from an older checkpoint: echo "
                       "step_00000001 > " +
                       dir_.path() + "/latest"),
            std::string::npos)
      << error;
  const struct {
    const char *file, *from, *to, *message;
  } cases[] = {
      {"state.safetensors", "\"w\"", "\"v\"", "lacks tensor \"w\""},
      {"state.safetensors", "F32", "I32", "tensor \"empty\" was damaged"},
      {"state.safetensors", "{", "[", "JSON"},
      {"manifest.json", "\"step\": 2", "\"step\": 3", "was edited"},
      {"manifest.json", "delayed", "dynamic", "was edited"},
      {"manifest.json", "model-1", "model-2", "was edited"},
      {"manifest.json", "\"version\": 1", "\"version\": 9",
       "expected version 1 to 4, got 9"},
      {"manifest.json", "onnx_fp8 checkpoint", "other",
       "expected format \"onnx_fp8 checkpoint\", got \"other\""},
      {"manifest.json", "\"format\"", "\"fromat\"", "with \"format\""},
      {"manifest.json", "\"step\": 2", "\"step\": \"2\"", "with \"step\""},
      {"manifest.json", "}", "", "no JSON object"},
      {"manifest.json", "\"delayed\"", "1", "expected strings as notes"},
  };
  for (const auto& c : cases) {
    error = ErrorWith(c.file, c.from, c.to);
    EXPECT_NE(error.find(c.message), std::string::npos)
        << c.from << " -> " << c.to << ": " << error;
    EXPECT_NE(error.find(folder_ + "/" + c.file), std::string::npos) << error;
  }
}

TEST_F(DamagedCheckpoint, TruncatedOrMissingFiles) {
  std::string state = folder_ + "/state.safetensors";
  std::string bytes = ReadText(state);
  WriteText(state, bytes.substr(0, bytes.size() - 4));
  EXPECT_NE(LoadError(dir_.path())
                .find(Concat("state.safetensors] expected ", bytes.size(),
                             " bytes, got ", bytes.size() - 4)),
            std::string::npos);
  std::filesystem::remove(state);
  EXPECT_NE(LoadError(dir_.path()).find("state.safetensors] can't be opened"),
            std::string::npos);
  std::filesystem::remove_all(folder_);
  EXPECT_NE(LoadError(dir_.path()).find("manifest.json] can't be opened"),
            std::string::npos);
  // Follow the way out that the message shows.
  WriteText(dir_ / "latest", "step_00000001\n");
  ExpectSame(*LoadLatestCheckpoint(dir_.path(), kModel), Make(1, 1));
}

TEST_F(DamagedCheckpoint, ADamagedLatestIsNoReasonToStartAgain) {
  for (const char* text : {"", "../../etc", "step_", "step_-1", "step_1_x",
                           "step_99999999999999999999"}) {
    WriteText(dir_ / "latest", text);
    EXPECT_NE(LoadError(dir_.path()).find("expected the name of a checkpoint"),
              std::string::npos)
        << text;
  }
  std::filesystem::remove(dir_ / "latest");
  ExpectSame(*LoadLatestCheckpoint(dir_.path(), kModel), Make(2, 2));
}

TEST_F(DamagedCheckpoint, AnotherModel) {
  ExpectError([&] { LoadLatestCheckpoint(dir_.path(), "model-2"); },
              "manifest.json] expected a checkpoint of model model-2, got one "
              "of model-1");
}

TEST_F(DamagedCheckpoint, NoDamageCrashesOrPasses) {
  for (const char* file : {"manifest.json", "state.safetensors"}) {
    std::string path = folder_ + "/" + file;
    std::string bytes = ReadText(path);
    // Changed white space in the JSON may pass.
    ReadDamagedFiles(bytes, path, [&](const std::string&) {
      ExpectSame(*LoadLatestCheckpoint(dir_.path(), kModel), Make(2, 2));
    });
    WriteText(path, bytes);
  }
}

// --- failures while saving

// Saves step 2 over step 1 with a hook that fails at its n-th call. Returns
// false once there are fewer calls.
bool SaveWithFailure(const std::string& dir, int n, bool kill) {
  int calls = 0;
  SaveOptions options;
  options.keep = 1;
  options.hook = [&](const std::string& operation) {
    if (++calls < n) return;
    if (kill) raise(SIGKILL);
    if (calls == n) Fail("no space left for ", operation);
  };
  SaveCheckpoint(dir, Make(2, 2), options);
  return calls >= n;
}

TEST(Checkpoint, AFailedSaveLeavesTheLastOne) {
  int n = 1;
  for (bool more = true; more; ++n) {
    TempDir dir;
    SaveCheckpoint(dir.path(), Make(1, 1));
    std::string error =
        ErrorOf([&] { more = SaveWithFailure(dir.path(), n, false); });
    auto loaded = LoadLatestCheckpoint(dir.path(), kModel);
    ASSERT_TRUE(loaded.has_value());
    if (loaded->step == 1) {
      EXPECT_NE(error, "");
      EXPECT_EQ(NamesIn(dir.path()),
                (std::set<std::string>{"checkpoints", "latest"}));
      EXPECT_EQ(NamesIn(dir / "checkpoints"),
                (std::set<std::string>{"step_00000001"}))
          << error;
    }
    ExpectSame(*loaded, loaded->step == 1 ? Make(1, 1) : Make(2, 2));
    // And the run goes on.
    CleanLeftovers(dir.path());
    SaveCheckpoint(dir.path(), Make(3, 3));
    ExpectSame(*LoadLatestCheckpoint(dir.path(), kModel), Make(3, 3));
  }
  EXPECT_GT(n, 15);
}

TEST(Checkpoint, AFailedFirstSaveLeavesNothing) {
  for (int n = 1; n <= 10; ++n) {
    TempDir dir;
    EXPECT_NE(ErrorOf([&] { SaveWithFailure(dir.path(), n, false); }), "");
    EXPECT_FALSE(LoadLatestCheckpoint(dir.path(), kModel).has_value());
    EXPECT_EQ(NamesIn(dir.path()), std::set<std::string>{}) << n;
  }
}

// Runs fn in a child process; returns its wait status.
template <typename Fn>
int InChild(Fn fn) {
  pid_t child = fork();
  if (child == 0) {
    try {
      fn();
    } catch (...) {
      _exit(1);
    }
    _exit(0);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status;
}

TEST(Checkpoint, AKillAtAnyOperationLeavesALoadableOne) {
  bool seen[3] = {};
  int n = 1;
  for (bool more = true; more; ++n) {
    TempDir dir;
    SaveCheckpoint(dir.path(), Make(1, 1));
    int status = InChild([&] { SaveWithFailure(dir.path(), n, true); });
    more = WIFSIGNALED(status);
    EXPECT_TRUE(more || WEXITSTATUS(status) == 0);
    CleanLeftovers(dir.path());
    auto loaded = LoadLatestCheckpoint(dir.path(), kModel);
    ASSERT_TRUE(loaded.has_value());
    ASSERT_LE(loaded->step, 2);
    seen[loaded->step] = true;
    ExpectSame(*loaded, loaded->step == 1 ? Make(1, 1) : Make(2, 2));
    for (const std::string& name : NamesIn(dir / "checkpoints")) {
      EXPECT_EQ(name.find("tmp"), std::string::npos) << name;
    }
    EXPECT_EQ(NamesIn(dir.path()),
              (std::set<std::string>{"checkpoints", "latest"}));
  }
  EXPECT_GT(n, 15);
  EXPECT_TRUE(seen[1] && seen[2]);
}

TEST(Checkpoint, AKillOfTheFirstSave) {
  bool seen[2] = {};
  for (bool more = true; int n : {1,  2,  3,  4,  5,  6,  7,  8,  9,  10,
                                  11, 12, 13, 14, 15, 16, 17, 18, 19, 20}) {
    if (!more) break;
    TempDir dir;
    int status = InChild([&] { SaveWithFailure(dir.path(), n, true); });
    more = WIFSIGNALED(status);
    CleanLeftovers(dir.path());
    auto loaded = LoadLatestCheckpoint(dir.path(), kModel);
    seen[loaded.has_value()] = true;
    if (loaded) ExpectSame(*loaded, Make(2, 2));
  }
  EXPECT_TRUE(seen[0] && seen[1]);
}

// The child saves step after step and reports every operation; it is killed
// somewhere after the n-th. The exact place is chance, but the checks must hold
// anyway.
TEST(Checkpoint, AKillAtAnyMomentLeavesALoadableOne) {
  TempDir dir;
  int64_t last = 0;
  for (int n = 1; n <= 60; n += 3) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
      SaveOptions options;
      options.hook = [&](const std::string&) {
        if (write(ends[1], "x", 1) != 1) _exit(1);
      };
      for (int64_t step = last + 1;; ++step) {
        SaveCheckpoint(dir.path(), Make(step, static_cast<float>(step)),
                       options);
      }
    }
    close(ends[1]);
    char byte;
    for (int i = 0; i < n; ++i) ASSERT_EQ(read(ends[0], &byte, 1), 1);
    kill(child, SIGKILL);
    ASSERT_EQ(waitpid(child, nullptr, 0), child);
    close(ends[0]);
    CleanLeftovers(dir.path());
    auto loaded = LoadLatestCheckpoint(dir.path(), kModel);
    if (!loaded) {
      EXPECT_EQ(last, 0);
      continue;
    }
    EXPECT_GE(loaded->step, last);
    last = loaded->step;
    ExpectSame(*loaded, Make(last, static_cast<float>(last)));
  }
  EXPECT_GT(last, 0);
}

TEST(Checkpoint, AFullDiskLeavesTheLastOne) {
  TempDir dir;
  SaveCheckpoint(dir.path(), Make(1, 1));
  Checkpoint large = Make(2, 2);
  large.state["large"] = Tensor::Zeros(DType::kFloat, {100'000});
  // A limit on file sizes acts like a full disk.
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small{100'000, before.rlim_max};
  auto handler = signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  std::string error = ErrorOf([&] { SaveCheckpoint(dir.path(), large); });
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, handler);
  EXPECT_NE(error.find("state.safetensors] can't be written: File too large"),
            std::string::npos)
      << error;
  EXPECT_EQ(NamesIn(dir / "checkpoints"),
            (std::set<std::string>{"step_00000001"}));
  ExpectSame(*LoadLatestCheckpoint(dir.path(), kModel), Make(1, 1));
}

TEST(Checkpoint, CallsBackBeforeTheRename) {
  TempDir dir;
  SaveOptions options;
  int calls = 0;
  options.before_rename = [&] {
    ++calls;
    for (const std::string& name : NamesIn(dir / "checkpoints")) {
      EXPECT_TRUE(IsTemporaryName(name)) << name;
      EXPECT_EQ(NamesIn(dir / ("checkpoints/" + name)).size(), 2u);
    }
  };
  SaveCheckpoint(dir.path(), Make(1, 1), options);
  EXPECT_EQ(calls, 1);
  options.before_rename = [] { Fail("metrics can't be written"); };
  ExpectError([&] { SaveCheckpoint(dir.path(), Make(2, 2), options); },
              "metrics can't be written");
  ExpectSame(*LoadLatestCheckpoint(dir.path(), kModel), Make(1, 1));
}

TEST(Checkpoint, CleansOnlyWhatItKnows) {
  TempDir dir;
  SaveCheckpoint(dir.path(), Make(1, 1));
  SaveCheckpoint(dir.path(), Make(2, 2));
  WriteText(dir / "notes.tmp-12", "mine");
  WriteText(dir / "latest.tmp-12", "half");
  WriteText(dir / "metrics.jsonl.tmp-12", "half");
  WriteText(dir / "checkpoints/step_00000003.tmp-x", "mine");
  std::filesystem::create_directories(dir / "checkpoints/step_00000003.tmp-9");
  WriteText(dir / "checkpoints/step_00000003.tmp-9/state.safetensors", "half");
  // Renamed, but killed before `latest` was replaced.
  std::filesystem::create_directories(dir / "checkpoints/step_00000003");
  EXPECT_EQ(CleanLeftovers(dir.path()).size(), 4u);
  EXPECT_EQ(NamesIn(dir.path()),
            (std::set<std::string>{"checkpoints", "latest", "notes.tmp-12"}));
  EXPECT_EQ(NamesIn(dir / "checkpoints"),
            (std::set<std::string>{"step_00000001", "step_00000002",
                                   "step_00000003.tmp-x"}));
  EXPECT_TRUE(CleanLeftovers(dir / "no/such").empty());
}

TEST(Checkpoint, ANewerCheckpointStaysWhereTheNamedOneIsGone) {
  TempDir dir;
  SaveCheckpoint(dir.path(), Make(2, 2));
  WriteText(dir / "latest", "step_00000001\n");
  EXPECT_TRUE(CleanLeftovers(dir.path()).empty());
  EXPECT_NE(LoadError(dir.path()).find("echo step_00000002"),
            std::string::npos);
}

}  // namespace
}  // namespace onnx_fp8
