// SPDX-License-Identifier: Apache-2.0
#include "data/weight_files.h"

#include <gtest/gtest.h>

#include "data/safetensors.h"
#include "tests/training/files.h"

namespace onnx_fp8 {
namespace {

constexpr char kIndexFile[] = "model.safetensors.index.json";

Tensor Number(float x) { return Tensor::Scalar(x); }

// Two shards, a and b, and the index `text`.
struct Sharded {
  explicit Sharded(const std::string& text) {
    WriteSafetensors(dir / "a.safetensors",
                     {{"x", Number(1)}, {"y", Number(2)}});
    WriteSafetensors(dir / "b.safetensors", {{"z", Number(3)}});
    WriteText(dir / kIndexFile, text);
  }
  std::string Refusal() const {
    return ErrorOf([&] { ReadWeightFiles(dir.path()); });
  }
  TempDir dir;
};

constexpr char kGoodIndex[] = R"({"metadata": {"total_size": 12, "more": {}},
    "weight_map": {"x": "a.safetensors", "z": "b.safetensors"}})";

void ExpectNumbers(const WeightFiles& all,
                   const std::map<std::string, float>& numbers) {
  EXPECT_EQ(all.tensors.size(), numbers.size());
  for (const auto& [name, number] : numbers) {
    ASSERT_TRUE(all.tensors.contains(name)) << name;
    EXPECT_EQ(all.tensors.at(name).data<float>()[0], number) << name;
  }
}

TEST(WeightFiles, OneFile) {
  TempDir dir;
  WriteSafetensors(dir / "w.safetensors", {{"x", Number(1)}});
  const WeightFiles all = ReadWeightFiles(dir / "w.safetensors");
  ExpectNumbers(all, {{"x", 1}});
  EXPECT_EQ(all.files.at("x"), dir / "w.safetensors");
  EXPECT_EQ(all.folder, dir.path());
}

TEST(WeightFiles, AFolderWithOneFile) {
  TempDir dir;
  WriteSafetensors(dir / "model.safetensors", {{"x", Number(1)}});
  const WeightFiles alone = ReadWeightFiles(dir.path());
  ExpectNumbers(alone, {{"x", 1}});
  EXPECT_EQ(alone.remark, "");
  // The one file counts beside an index.
  WriteText(dir / kIndexFile, "no JSON");
  const WeightFiles both = ReadWeightFiles(dir.path());
  ExpectNumbers(both, {{"x", 1}});
  EXPECT_EQ(both.remark, Concat("[", dir.path(),
                                "] has model.safetensors and "
                                "model.safetensors.index.json: the first is "
                                "read"));
}

TEST(WeightFiles, ShardsByFolderAndByIndex) {
  const Sharded shards(kGoodIndex);
  for (const std::string& path : {shards.dir.path(), shards.dir / kIndexFile}) {
    const WeightFiles all = ReadWeightFiles(path);
    // y is in a shard, but not in the index.
    ExpectNumbers(all, {{"x", 1}, {"y", 2}, {"z", 3}});
    EXPECT_EQ(all.files.at("z"), shards.dir / "b.safetensors");
  }
}

TEST(WeightFiles, ShardsMayBeLinks) {
  const Sharded shards(kGoodIndex);
  std::filesystem::create_directory(shards.dir / "blobs");
  std::filesystem::rename(shards.dir / "b.safetensors", shards.dir / "blobs/1");
  std::filesystem::create_symlink("blobs/1", shards.dir / "b.safetensors");
  ExpectNumbers(ReadWeightFiles(shards.dir.path()),
                {{"x", 1}, {"y", 2}, {"z", 3}});
}

TEST(WeightFiles, RefusesWrongIndices) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "expected a JSON object with an object weight_map"},
      {"[]", "expected a JSON object with an object weight_map"},
      {"{}", "expected a JSON object with an object weight_map"},
      {R"({"weight_map": []})", "object weight_map"},
      {R"({"weight_map": {"x": 1}})", "as shards, got number"},
      {R"({"weight_map": {"x": ""}})", "as shards, got \"\""},
      {R"({"weight_map": {"x": ".."}})", "as shards, got \"..\""},
      {R"({"weight_map": {"x": "../a.safetensors"}})",
       "as shards, got \"../a.safetensors\""},
      {R"({"weight_map": {"x": "/etc/passwd"}})", "as shards, got"},
      {R"({"weight_map": {"x": "a.safetensors\u0000"}})", "as shards, got"},
      {R"({"weight_map": {"x": "c.safetensors"}})",
       "c.safetensors, which does not exist"},
      {R"({"weight_map": {"q": "a.safetensors"}})",
       "a.safetensors] expected tensor \"q\""},
      {R"({"weight_map": {"x": "a.safetensors", "y": "b.safetensors"}})",
       "b.safetensors] expected tensor \"y\""},
      {R"({"weight_map": {"x": "a.safetensors", "x": "b.safetensors"}})",
       "expected every tensor once, got \"x\" twice"},
  };
  for (const auto& [index, message] : cases) {
    const std::string text = Sharded(index).Refusal();
    EXPECT_NE(text.find(message), std::string::npos)
        << index << "\nexpected: " << message << "\ngot:      " << text;
  }
  const std::string deep(100'000, '[');
  EXPECT_NE(Sharded(R"({"metadata": )" + deep).Refusal(), "");
}

TEST(WeightFiles, RefusesATensorInTwoShards) {
  const Sharded shards(kGoodIndex);
  WriteSafetensors(shards.dir / "b.safetensors",
                   {{"z", Number(3)}, {"y", Number(2)}});
  EXPECT_NE(shards.Refusal().find("in one shard, got \"y\""), std::string::npos)
      << shards.Refusal();
}

TEST(WeightFiles, RefusesAFolderWithoutWeights) {
  TempDir dir;
  ExpectError([&] { ReadWeightFiles(dir.path()); },
              "expected a folder with model.safetensors or "
              "model.safetensors.index.json, got neither");
  for (const char* name :
       {"pytorch_model.bin.index.json", "pytorch_model.bin"}) {
    WriteText(dir / name, "");
    ExpectError([&] { ReadWeightFiles(dir.path()); },
                Concat("got neither, but ", name,
                       ": pickles of PyTorch are not read (save_pretrained of "
                       "transformers writes safetensors)"));
  }
  ExpectError([&] { ReadWeightFiles(dir / "none.safetensors"); },
              "can't be opened: No such file");
}

}  // namespace
}  // namespace onnx_fp8
