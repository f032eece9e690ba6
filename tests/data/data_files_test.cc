// SPDX-License-Identifier: Apache-2.0
#include "data/data_files.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/training/files.h"

namespace onnx_fp8 {
namespace {

class DataFilesTest : public testing::Test {
 protected:
  std::string Add(const std::string& name, size_t bytes = 8) {
    WriteText(dir_ / name, std::string(bytes, '\0'));
    return dir_ / name;
  }
  std::vector<std::string> Files(const std::string& item) {
    return DataFiles(item, DType::kUInt16);
  }
  std::string Index(const std::string& text) {
    WriteText(dir_ / "index.json", text);
    return dir_ / "";
  }
  std::string IndexOf(const std::string& shards) {
    return Index("{\"token_dtype\": \"uint16\", \"shards\": [" + shards + "]}");
  }
  TempDir dir_;
};

TEST_F(DataFilesTest, AFileIsItself) {
  EXPECT_EQ(Files(dir_ / "none.npz"),
            (std::vector<std::string>{dir_ / "none.npz"}));
  // A name with a pattern's characters is a file, if there is one.
  const std::string odd = Add("a[0]*.bin");
  EXPECT_EQ(Files(odd), (std::vector<std::string>{odd}));
}

TEST_F(DataFilesTest, AFolderIsItsTokenFilesByName) {
  for (const char* name : {"b.bin", "a.bin", "c10.bin", "notes.txt"}) Add(name);
  std::filesystem::create_directory(dir_ / "sub.bin");
  std::vector<std::string> names;
  for (const std::string& file : Files(dir_ / "")) {
    names.push_back(std::filesystem::path(file).filename());
  }
  EXPECT_EQ(names, (std::vector<std::string>{"a.bin", "b.bin", "c10.bin"}));
}

TEST_F(DataFilesTest, APatternIsTheFilesThatFit) {
  const std::string b = Add("t2.bin"), a = Add("t1.bin");
  Add("v1.bin");
  EXPECT_EQ(Files(dir_ / "t?.bin"), (std::vector<std::string>{a, b}));
  EXPECT_EQ(Files(dir_ / "[t]*"), (std::vector<std::string>{a, b}));
  ExpectError([&] { Files(dir_ / "x*.bin"); },
              "x*.bin] expected files that fit this pattern, got none");
}

TEST_F(DataFilesTest, AFolderWithoutTokensIsNamed) {
  Add("a.npz");
  ExpectError([&] { Files(dir_ / ""); },
              "expected a folder with index.json or token files (.bin), got "
              "neither");
}

TEST_F(DataFilesTest, AnIndexChoosesTheShardsAndTheirOrder) {
  Add("a.bin", 8);
  Add("b.bin", 6);
  Add("left_out.bin");
  const std::vector<std::string> found =
      Files(IndexOf("{\"file\": \"b.bin\", \"tokens\": 3, \"more\": {}},"
                    "{\"file\": \"a.bin\", \"tokens\": 4}"));
  ASSERT_EQ(found.size(), 2u);
  EXPECT_TRUE(std::filesystem::equivalent(found[0], dir_ / "b.bin"));
  EXPECT_TRUE(std::filesystem::equivalent(found[1], dir_ / "a.bin"));
}

TEST_F(DataFilesTest, AnIndexThatDoesNotFitIsNamed) {
  Add("a.bin", 8);
  const auto expect = [&](const std::string& folder, const std::string& part) {
    ExpectError([&] { Files(folder); }, part);
  };
  const std::string form = "index.json] expected a JSON object with a string";
  expect(Index(""), form);
  expect(Index("[]"), form);
  expect(Index("{\"token_dtype\": 2, \"shards\": []}"), form);
  expect(Index("{\"token_dtype\": \"uint16\", \"shards\": {}}"), form);
  expect(Index("{\"token_dtype\": \"uint32\", \"shards\": []}"),
         "index.json] holds tokens of uint32, expected uint16 (`token_dtype`)");
  expect(IndexOf(""), "index.json] expected shards, got none");
  const std::string shard = "another one at 0";
  expect(IndexOf("3"), shard);
  expect(IndexOf("{\"file\": \"a.bin\"}"), shard);
  expect(IndexOf("{\"file\": 1, \"tokens\": 4}"), shard);
  expect(IndexOf("{\"file\": \"a.bin\", \"tokens\": -4}"), shard);
  expect(IndexOf("{\"file\": \"a.bin\", \"tokens\": 4.0}"), shard);
  for (const char* name : {"", ".", "..", "../a.bin", "/a.bin"}) {
    expect(IndexOf(Concat("{\"file\": \"", name, "\", \"tokens\": 4}")),
           "expected names of files in the index' folder as shards");
  }
  Add("a.npy", 8);
  expect(IndexOf("{\"file\": \"a.npy\", \"tokens\": 4}"),
         "index.json] expected token files (.bin) as shards, got \"a.npy\"");
  const std::string a = "{\"file\": \"a.bin\", \"tokens\": 4}";
  expect(IndexOf(a + "," + a), "every shard once, got \"a.bin\" twice");
  expect(IndexOf("{\"file\": \"b.bin\", \"tokens\": 4}"),
         "b.bin, which does not exist");
  expect(IndexOf("{\"file\": \"a.bin\", \"tokens\": 5}"),
         "a.bin] expected 5 tokens of uint16, as ");
  expect(IndexOf("{\"file\": \"a.bin\", \"tokens\": 9223372036854775812}"),
         "got a file of 8 bytes");
}

}  // namespace
}  // namespace onnx_fp8
