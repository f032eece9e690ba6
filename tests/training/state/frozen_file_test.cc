// SPDX-License-Identifier: Apache-2.0
#include "training/state/frozen_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "data/safetensors.h"
#include "tests/training/files.h"
#include "training/state/checkpoint.h"

namespace onnx_fp8 {
namespace {

namespace fs = std::filesystem;

constexpr char kFrozenModel[] = "frozen-model";

Tensor HalvesAsFloats(float first) {
  return Tensor::From<float>({2, 2}, std::vector{first, -2.0f, 0.5f, 4.0f});
}

// A weight that a file of weights has as bfloat16s, and one of floats.
struct SharedWeights {
  explicit SharedWeights(float first) {
    tensors.emplace("half", TensorSource(
                                DType::kFloat, {2, 2},
                                [this, first] {
                                  ++pulls;
                                  return HalvesAsFloats(first);
                                },
                                DType::kBFloat16));
    tensors.emplace("whole", Tensor::From<float>({1}, std::vector{0.1f}));
  }

  SourceMap tensors;
  std::optional<FrozenFile> file;
  int pulls = 0;
};

void SaveShared(const std::string& dir, int64_t step, SharedWeights* weights,
                int64_t keep = 2, const FileHook& hook = {}) {
  Checkpoint checkpoint{.step = step};
  checkpoint.model = kFrozenModel;
  checkpoint.state = {{"adapter", Tensor::Scalar(static_cast<float>(step))}};
  SaveOptions options;
  options.keep = keep;
  options.hook = hook;
  options.frozen = weights->tensors;
  options.frozen_file = &weights->file;
  SaveCheckpoint(dir, checkpoint, options);
}

std::set<std::string> FrozenFilesIn(const std::string& dir) {
  std::set<std::string> names = NamesIn(dir + "/checkpoints");
  std::erase_if(
      names, [](const std::string& name) { return !IsFrozenFileName(name); });
  return names;
}

std::string NameOfFile(const SharedWeights& weights) {
  return fs::path(weights.file->path).filename().string();
}

std::string ErrorOfShared(const std::string& dir) {
  return ErrorOf([&] { LoadLatestCheckpoint(dir, kFrozenModel); });
}

TEST(FrozenFile, IsWrittenOnceForAllCheckpoints) {
  TempDir dir;
  SharedWeights weights(1);
  for (int64_t step : {1, 2, 3}) SaveShared(dir.path(), step, &weights);
  EXPECT_EQ(weights.pulls, 1);
  EXPECT_EQ(NamesIn(dir / "checkpoints"),
            (std::set<std::string>{NameOfFile(weights), "step_00000002",
                                   "step_00000003"}));
  const auto loaded = LoadLatestCheckpoint(dir.path(), kFrozenModel);
  EXPECT_EQ(loaded->state.size(), 1u);
  EXPECT_EQ(loaded->frozen_file->path, weights.file->path);
  ASSERT_EQ(loaded->frozen.size(), 2u);
  EXPECT_TRUE(Identical(loaded->frozen.at("half").Pull(), HalvesAsFloats(1)));
  EXPECT_TRUE(Identical(loaded->frozen.at("whole").Pull(),
                        weights.tensors.at("whole").Pull()));
  EXPECT_EQ(loaded->TypeOf("half"), "float[2,2]");
}

TEST(FrozenFile, HasTheDTypesInWhichFilesHadTheWeights) {
  TempDir dir;
  SharedWeights weights(1);
  SaveShared(dir.path(), 1, &weights);
  const TensorMap held = ReadSafetensors(weights.file->path);
  EXPECT_EQ(held.at("half").dtype(), DType::kBFloat16);
  EXPECT_EQ(held.at("whole").dtype(), DType::kFloat);
  const auto loaded = LoadLatestCheckpoint(dir.path(), kFrozenModel);
  EXPECT_EQ(loaded->frozen.at("half").stored(), DType::kBFloat16);
  // A file that is written of what was read is the same.
  std::optional<FrozenFile> none;
  const FrozenFile again = KeepFrozenFile(dir.path(), loaded->frozen, none);
  EXPECT_EQ(again.entry, weights.file->entry);
  EXPECT_EQ(ReadText(again.path), ReadText(weights.file->path));
}

TEST(FrozenFile, OfOtherWeightsIsAnotherOne) {
  TempDir dir;
  SharedWeights one(1), two(2);
  SaveShared(dir.path(), 1, &one);
  SaveShared(dir.path(), 2, &two);
  EXPECT_EQ(FrozenFilesIn(dir.path()),
            (std::set<std::string>{NameOfFile(one), NameOfFile(two)}));
  // No checkpoint needs the first one any more.
  SaveShared(dir.path(), 3, &two);
  EXPECT_EQ(FrozenFilesIn(dir.path()), std::set<std::string>{NameOfFile(two)});
  EXPECT_TRUE(Identical(
      LoadLatestCheckpoint(dir.path(), kFrozenModel)->frozen.at("half").Pull(),
      HalvesAsFloats(2)));
}

TEST(FrozenFile, HasOneMoreNameInAnotherFolder) {
  TempDir dir;
  SharedWeights weights(1);
  SaveShared(dir / "run", 1, &weights);
  const std::string first = weights.file->path;
  SaveShared(dir / "run/best", 1, &weights);
  EXPECT_NE(weights.file->path, first);
  EXPECT_TRUE(fs::equivalent(weights.file->path, first));
  EXPECT_EQ(weights.pulls, 1);
  // Somebody takes the run away while it goes on.
  fs::remove_all(dir / "run");
  SaveShared(dir / "run", 2, &weights);
  EXPECT_EQ(weights.pulls, 2);
  EXPECT_EQ(weights.file->path, first);
  EXPECT_EQ(ErrorOfShared(dir / "run"), "");
}

// A file of gigabytes is not read for a note.
TEST(FrozenFile, IsNotReadForPartsOfACheckpoint) {
  TempDir dir;
  SharedWeights weights(1);
  SaveShared(dir.path(), 7, &weights);
  WriteText(weights.file->path, "other");
  EXPECT_NE(ErrorOfShared(dir.path()), "");
  const std::set<std::string> none, one = {"adapter", "half"};
  const auto read = [&](const std::set<std::string>& names) {
    return LoadLatestCheckpoint(dir.path(), kFrozenModel, names);
  };
  EXPECT_EQ(read(one)->state.size(), 1u);
  EXPECT_TRUE(Identical(read(one)->state.at("adapter"), Tensor::Scalar(7.0f)));
  EXPECT_TRUE(read(one)->frozen.empty());
  // A tensor that is read is checked, and none else.
  const std::string path = dir / "checkpoints/step_00000007/state.safetensors";
  std::string state = ReadText(path);
  state.back() = static_cast<char>(state.back() ^ 1);
  WriteText(path, state);
  EXPECT_NE(ErrorOf([&] { read(one); }).find("\"adapter\" was damaged"),
            std::string::npos);
  EXPECT_EQ(read({"half"})->step, 7);
  EXPECT_EQ(read(none)->step, 7);
  // Sizes are known without reading.
  WriteText(path, state + "x");
  EXPECT_NE(ErrorOf([&] { read(none); }).find("(truncated or edited)"),
            std::string::npos);
}

TEST(FrozenFile, ThatIsNotTheRunsIsRefusedByName) {
  TempDir dir;
  SharedWeights weights(1);
  SaveShared(dir.path(), 1, &weights);
  const std::string path = weights.file->path, bytes = ReadText(path);
  const auto error_with = [&](const std::string& text) {
    WriteText(path, text);
    return ErrorOfShared(dir.path());
  };
  const std::string where = "[" + path + "] ";
  EXPECT_TRUE(error_with(bytes.substr(0, bytes.size() - 1))
                  .starts_with(Concat(where, "expected ", bytes.size(),
                                      " bytes, got ", bytes.size() - 1)));
  std::string other = bytes;
  other.back() = static_cast<char>(other.back() ^ 1);
  EXPECT_TRUE(error_with(other).starts_with(
      where + "tensor \"half\" was damaged or edited"));
  other = bytes;
  other.replace(other.find("\"whole\""), 7, "\"whale\"");
  EXPECT_TRUE(error_with(other).starts_with(where + "lacks tensor \"whole\""));
  EXPECT_EQ(error_with(bytes), "");
  fs::remove(path);
  EXPECT_TRUE(ErrorOfShared(dir.path()).starts_with(where + "can't be opened"));
}

// A manifest of somebody else names no file elsewhere.
TEST(FrozenFile, LiesBesideTheCheckpoints) {
  for (const char* name :
       {"../../secret.safetensors", "frozen_/../../../../a12.safetensors", "",
        "frozen_0123456789abcdef.onnx"}) {
    ExpectError(
        [&] {
          FrozenFileIn("run/checkpoints",
                       Concat("{\"file\": \"", name,
                              "\", \"bytes\": 1, \"tensors\": {}}"),
                       "manifest.json");
        },
        "[manifest.json] expected a file frozen_….safetensors beside the "
        "checkpoints, got ");
  }
  for (const char* entry :
       {"[]", "{}", "{\"file\": 1}",
        "{\"file\": \"a\", \"bytes\": -1, \"tensors\": {}}",
        "{\"file\": \"a\", \"bytes\": 1, \"tensors\": []}"}) {
    ExpectError([&] { FrozenFileIn("run", entry, "manifest.json"); },
                "[manifest.json] expected a file of frozen weights");
  }
}

TEST(FrozenFile, HasNoTensorOfTheStateToo) {
  TempDir dir;
  SharedWeights weights(1);
  weights.tensors.emplace("adapter", Tensor::Zeros(DType::kFloat, {9}));
  SaveShared(dir.path(), 1, &weights);
  const std::string error = ErrorOfShared(dir.path());
  EXPECT_NE(error.find("manifest.json] expected every tensor in one file, got "
                       "\"adapter\", which " +
                       weights.file->path + " holds too"),
            std::string::npos)
      << error;
}

TEST(FrozenFile, AFailedSaveLeavesTheLastCheckpointWithItsFile) {
  int n = 1;
  for (bool more = true; more; ++n) {
    TempDir dir;
    SharedWeights one(1), two(2);
    SaveShared(dir.path(), 1, &one);
    int calls = 0;
    const std::string error = ErrorOf([&] {
      SaveShared(dir.path(), 2, &two, 1, [&](const std::string& operation) {
        if (++calls == n) Fail("no space left for ", operation);
      });
    });
    more = calls >= n;
    EXPECT_EQ(error.empty(), !more);
    const auto loaded = LoadLatestCheckpoint(dir.path(), kFrozenModel);
    ASSERT_TRUE(loaded.has_value());
    const bool old = loaded->step == 1;
    EXPECT_TRUE(Identical(loaded->frozen.at("half").Pull(),
                          HalvesAsFloats(old ? 1 : 2)));
    if (old) {
      EXPECT_EQ(NamesIn(dir / "checkpoints"),
                (std::set<std::string>{NameOfFile(one), "step_00000001"}))
          << error;
    }
  }
  EXPECT_GT(n, 15);
}

TEST(FrozenFile, LeftoversGo) {
  TempDir dir;
  SharedWeights weights(1);
  SaveShared(dir.path(), 1, &weights);
  const std::string folder = dir / "checkpoints/";
  const std::string unused = "frozen_0123456789abcdef.safetensors";
  fs::copy(weights.file->path, folder + unused);
  WriteText(TemporaryName(folder + "frozen"), "half a file");
  CleanLeftovers(dir.path());
  EXPECT_EQ(NamesIn(folder),
            (std::set<std::string>{NameOfFile(weights), "step_00000001"}));
  // A checkpoint that can't be read may need any file.
  fs::copy(weights.file->path, folder + unused);
  WriteText(folder + "step_00000001/manifest.json", "{}");
  CleanLeftovers(dir.path());
  EXPECT_EQ(FrozenFilesIn(dir.path()).size(), 2u);
}

}  // namespace
}  // namespace onnx_fp8
