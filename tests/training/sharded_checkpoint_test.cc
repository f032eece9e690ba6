// SPDX-License-Identifier: Apache-2.0
//
// Checkpoints that several ranks write.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/hash.h"
#include "base/mapped_file.h"
#include "tests/support/thread_ranks.h"
#include "tests/training/files.h"
#include "training/state/checkpoint.h"

namespace onnx_fp8 {
namespace {

using Json = nlohmann::json;

constexpr int64_t kShardedRows = 5;

Tensor Rows(int64_t begin, int64_t rows, int64_t stored) {
  Tensor t = Tensor::Zeros(DType::kFloat, {stored, 2});
  for (int64_t i = 0; i < 2 * rows; ++i) {
    t.data<float>()[i] = static_cast<float>(2 * begin + i + 1);
  }
  return t;
}

// "w" of 5 rows is divided among 4 ranks (2, 2, 1, none); "b" is whole.
void SaveParts(Communicator& ranks, const std::string& dir,
               SaveOptions options = {}) {
  const Shard shard = ShardOf({kShardedRows, 2}, ranks.rank(), ranks.size());
  Checkpoint checkpoint;
  checkpoint.step = 3;
  checkpoint.model = "m";
  TensorMap state = {{"b", Tensor::Scalar(7.0f)},
                     {"w", Rows(shard.begin, shard.rows, shard.part[0])}};
  options.ranks = &ranks;
  options.shards = {{"w", shard}};
  SaveCheckpoint(dir, checkpoint, Sources(state), options);
}

void SaveByFourRanks(const std::string& dir) {
  RunRanks(4, [&](Communicator& ranks) { SaveParts(ranks, dir); });
}

std::string NewestOf(const std::string& dir) {
  return dir + "/checkpoints/" + ReadText(dir + "/latest").substr(0, 13);
}

// The version of the checkpoint's format. Programs refuse a version that they
// do not know.
int VersionOf(const std::string& dir) {
  return Json::parse(ReadText(NewestOf(dir) + "/manifest.json"))["version"];
}

TEST(ShardedCheckpoint, RowsOfAllRanks) {
  TempDir dir;
  SaveByFourRanks(dir.path());
  EXPECT_EQ(VersionOf(dir.path()), 2);
  EXPECT_EQ(
      NamesIn(NewestOf(dir.path())),
      (std::set<std::string>{"manifest.json", "state.00001.safetensors",
                             "state.00002.safetensors",
                             "state.00003.safetensors", "state.safetensors"}));
  auto checkpoint = LoadLatestCheckpoint(dir.path(), "m");
  EXPECT_EQ(*checkpoint->state.at("b").data<float>(), 7.0f);
  const ShardedTensor& w = checkpoint->shards.at("w");
  EXPECT_EQ(w.shape, (Shape{kShardedRows, 2}));
  EXPECT_EQ(checkpoint->TypeOf("w"), "float[5,2]");
  for (int64_t begin = 0; begin <= kShardedRows; ++begin) {
    for (int64_t rows = 0; begin + rows <= kShardedRows; ++rows) {
      Tensor got = w.Rows(begin, rows);
      ASSERT_EQ(got.shape(), (Shape{rows, 2}));
      for (int64_t i = 0; i < got.size(); ++i) {
        EXPECT_EQ(got.data<float>()[i], static_cast<float>(2 * begin + i + 1));
      }
    }
  }
}

// The disk of one rank is full: all ranks fail with that rank's reason, and the
// last checkpoint stays.
TEST(ShardedCheckpoint, AnErrorOfOneRankIsAnErrorOfAll) {
  TempDir dir;
  SaveByFourRanks(dir.path());
  const std::string before = NewestOf(dir.path());
  for (int failing : {0, 2}) {
    std::vector<std::string> errors(4);
    RunRanks(4, [&](Communicator& ranks) {
      SaveOptions options;
      options.hook = [&](const std::string& event) {
        Check(ranks.rank() != failing ||
                  event.find("safetensors") == std::string::npos,
              "no space left");
      };
      errors[static_cast<size_t>(ranks.rank())] =
          ErrorOf([&] { SaveParts(ranks, dir.path(), options); });
    });
    for (const std::string& error : errors) {
      EXPECT_EQ(error, Concat("rank ", failing, ": no space left"));
    }
    EXPECT_EQ(NewestOf(dir.path()), before);
    EXPECT_EQ(NamesIn(dir / "checkpoints").size(), 1u);
    LoadLatestCheckpoint(dir.path(), "m");
  }
}

// Writes the manifest with its checksum.
void WriteManifestText(const std::string& folder, Json manifest) {
  manifest.erase("crc32");
  const std::string text = manifest.dump();
  manifest["crc32"] = Hex(Crc32(text.data(), text.size()));
  WriteText(folder + "/manifest.json", manifest.dump(1));
}

TEST(ShardedCheckpoint, DamagedFiles) {
  TempDir dir;
  SaveByFourRanks(dir.path());
  const std::string folder = NewestOf(dir.path());
  const Json manifest = Json::parse(ReadText(folder + "/manifest.json"));
  auto expect = [&](const Json& edited, const std::string& error) {
    WriteManifestText(folder, edited);
    ExpectError([&] { LoadCheckpoint(folder, "m"); }, error);
    WriteManifestText(folder, manifest);
    LoadCheckpoint(folder, "m");
  };
  Json edited = manifest;
  edited["tensors"]["w"]["shards"].erase(2);
  expect(edited, "expected 5 rows in the shards of each part, got 4");
  edited = manifest;
  edited["tensors"]["w"]["shards"].erase(0);
  expect(edited, "tensor \"w\": expected rows from 0 on, got ");
  edited = manifest;
  edited["tensors"]["w"]["shards"] = Json::array();
  expect(edited, "tensor \"w\": expected shards, got none");
  edited = manifest;
  edited["tensors"]["w"]["shape"] = Json::array();
  expect(edited, "expected an axis, got a scalar in shards");
  edited = manifest;
  edited["tensors"]["w"]["shards"][1]["axis"] = 1;
  expect(edited, "tensor \"w\": expected rows from 2 on, got ");
  edited = manifest;
  edited["tensors"]["w"]["shards"][1]["file"] = "state.00009.safetensors";
  expect(edited, "/state.00009.safetensors] lacks tensor \"w\"");
  edited = manifest;
  edited["tensors"]["w"]["shards"][1] = 5;
  expect(edited, "expected a checkpoint's manifest with \"rows\"");
  edited = manifest;
  edited["files"]["../state.safetensors"] = 5;
  expect(edited, "expected files of the checkpoint's folder, got ../");
  edited = manifest;
  edited["files"].erase("state.00002.safetensors");
  expect(edited, "/state.00002.safetensors] lacks tensor \"w\"");
  edited = manifest;
  edited["tensors"].erase("w");
  expect(edited, "holds a foreign tensor \"w\"");

  const std::string path = folder + "/state.00001.safetensors";
  std::string bytes = ReadText(path);
  bytes.back() ^= 1;
  WriteText(path, bytes);
  ExpectError([&] { LoadCheckpoint(folder, "m"); },
              "/state.00001.safetensors] tensor \"w\" was damaged or edited");
  bytes.pop_back();
  WriteText(path, bytes);
  ExpectError([&] { LoadCheckpoint(folder, "m"); }, "(truncated or edited)");
  std::filesystem::remove(path);
  ExpectError([&] { LoadCheckpoint(folder, "m"); }, "state.00001.safetensors");
}

// "w" of 4 columns: two ranks have the columns 0 and 2, 1 and 3 (two blocks),
// and of these each of two ranks has rows.
void SaveColumns(Communicator& ranks, const std::string& dir) {
  const TensorPart part = {{1, 2}, ranks.rank() % 2, 2};
  Shard shard = ShardOf({3, 2}, ranks.rank() / 2, 2);
  shard.whole = {3, 4};
  shard.tensor_part = part;
  Tensor whole = Tensor::Allocate(DType::kFloat, shard.whole);
  for (int64_t i = 0; i < whole.size(); ++i) {
    whole.data<float>()[i] = static_cast<float>(i);
  }
  SaveOptions options;
  options.ranks = &ranks;
  options.shards = {{"w", shard}};
  Checkpoint checkpoint;
  checkpoint.step = 3;
  checkpoint.model = "m";
  SaveCheckpoint(dir, checkpoint, Sources({{"w", PartOf(whole, shard)}}),
                 options);
}

TEST(ShardedCheckpoint, RowsOfPartsOfColumns) {
  TempDir dir;
  RunRanks(4, [&](Communicator& ranks) { SaveColumns(ranks, dir.path()); });
  EXPECT_EQ(VersionOf(dir.path()), 3);
  auto checkpoint = LoadLatestCheckpoint(dir.path(), "m");
  EXPECT_EQ(checkpoint->TypeOf("w"), "float[3,4]");
  const Tensor whole = checkpoint->shards.at("w").Whole();
  ASSERT_EQ(whole.shape(), (Shape{3, 4}));
  for (int64_t i = 0; i < whole.size(); ++i) {
    EXPECT_EQ(whole.data<float>()[i], static_cast<float>(i));
  }
}

TEST(ShardedCheckpoint, DamagedParts) {
  TempDir dir;
  RunRanks(4, [&](Communicator& ranks) { SaveColumns(ranks, dir.path()); });
  const std::string folder = NewestOf(dir.path());
  const Json manifest = Json::parse(ReadText(folder + "/manifest.json"));
  auto expect = [&](const char* key, const Json& value,
                    const std::string& error) {
    Json edited = manifest;
    edited["tensors"]["w"]["shards"][1]["part"][key] = value;
    WriteManifestText(folder, edited);
    ExpectError([&] { LoadCheckpoint(folder, "m"); }, error);
  };
  expect("axis", 2, "tensor \"w\": expected \"axis\" in 0…1, got 2");
  expect("axis", -1, "tensor \"w\": expected \"axis\" in 0…1, got -1");
  expect("axis", 0, "expected parts that divide [3,4], got ");
  expect("blocks", 0, "tensor \"w\": expected \"blocks\" in 1…4, got 0");
  expect("blocks", 1, "tensor \"w\": expected parts of one kind, got ");
  expect("rank", 2, "tensor \"w\": expected \"rank\" in 0…1, got 2");
  expect("rank", 0, "tensor \"w\": expected rows from 2 on, got ");
  expect("ranks", 4, "expected parts that divide [3,4], got ");
  expect("ranks", "2", "expected a checkpoint's manifest with \"ranks\"");
  Json edited = manifest;
  edited["tensors"]["w"]["shards"][1].erase("part");
  WriteManifestText(folder, edited);
  ExpectError([&] { LoadCheckpoint(folder, "m"); },
              "tensor \"w\": expected parts of one kind, got ");
  edited = manifest;
  edited["tensors"]["w"]["shards"].erase(3);
  WriteManifestText(folder, edited);
  ExpectError([&] { LoadCheckpoint(folder, "m"); },
              "expected 3 rows in the shards of each part, got 2");
}

}  // namespace
}  // namespace onnx_fp8
