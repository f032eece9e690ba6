// SPDX-License-Identifier: Apache-2.0
#include "data/safetensors.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "tests/training/files.h"

namespace onnx_fp8 {
namespace {

std::string File(const std::string& header, const std::string& data = "") {
  uint64_t size = header.size();
  return std::string(reinterpret_cast<char*>(&size), 8) + header + data;
}

std::string ErrorOfFile(const std::string& bytes) {
  TempDir dir;
  WriteText(dir / "a.safetensors", bytes);
  return ErrorOf([&] { ReadSafetensors(dir / "a.safetensors"); });
}

TEST(Safetensors, ReadsWhatTheReferenceWrote) {
  StringMap metadata;
  TensorMap t = ReadSafetensors(FixtureFile("arrays.safetensors"), &metadata);
  EXPECT_EQ(metadata, (StringMap{{"format", "pt"}, {"who", "tests"}}));
  Tensor x = Tensor::From<float>(
      {2, 3}, std::vector<float>{0, 0.25f, 0.5f, 0.75f, 1, 1.25f});
  EXPECT_TRUE(Identical(t.at("x"), x));
  for (auto [name, dtype] : {std::pair("half", DType::kFloat16),
                             {"double", DType::kDouble},
                             {"bf16", DType::kBFloat16},
                             {"e4m3", DType::kE4M3},
                             {"e5m2", DType::kE5M2}}) {
    EXPECT_TRUE(Identical(t.at(name), ConvertTo(x, dtype))) << name;
  }
  EXPECT_EQ(ToInts(t.at("labels")), (std::vector<int64_t>{3, -1}));
  EXPECT_EQ(ToInts(t.at("mask")), (std::vector<int64_t>{1, 0, 1}));
  EXPECT_EQ(t.at("scalar").rank(), 0);
  EXPECT_EQ(t.at("empty").shape(), (Shape{0, 3}));
}

TEST(Safetensors, WritesWhatItReads) {
  TempDir dir;
  StringMap metadata;
  TensorMap t = ReadSafetensors(FixtureFile("arrays.safetensors"), &metadata);
  WriteSafetensors(dir / "b.safetensors", Sources(t), metadata);
  StringMap again_metadata;
  TensorMap again = ReadSafetensors(dir / "b.safetensors", &again_metadata);
  ASSERT_EQ(again.size(), t.size());
  for (const auto& [name, tensor] : t) {
    EXPECT_TRUE(Identical(again.at(name), tensor)) << name;
    EXPECT_EQ(
        reinterpret_cast<uintptr_t>(tensor.raw()) % ByteSize(tensor.dtype()),
        0u);
  }
  EXPECT_EQ(again_metadata, metadata);
  std::string bytes = ReadText(dir / "b.safetensors");
  uint64_t header;
  std::memcpy(&header, bytes.data(), 8);
  EXPECT_EQ(header % 8, 0u);
  WriteSafetensors(dir / "c.safetensors", Sources(again), again_metadata);
  EXPECT_EQ(ReadText(dir / "c.safetensors"), bytes);
}

// This keeps every array aligned in the mapped file.
TEST(Safetensors, LargeElementsComeFirst) {
  TempDir dir;
  std::string path = dir / "a.safetensors";
  WriteSafetensors(path, {{"a", Tensor::Zeros(DType::kUInt8, {3})},
                          {"b", Tensor::Zeros(DType::kFloat, {1})},
                          {"c", Tensor::Zeros(DType::kDouble, {1})}});
  std::string text = ReadText(path);
  for (const char* at : {"[0,8]", "[8,12]", "[12,15]"}) {
    EXPECT_NE(text.find(at), std::string::npos) << at;
  }
}

// The file has the same bytes in either order of pulls.
TEST(Safetensors, TensorsMayComeInTheOrderOfTheirNames) {
  TempDir dir;
  const TensorMap t = ReadSafetensors(FixtureFile("arrays.safetensors"));
  std::vector<std::string> order, names;
  SourceMap sources;
  for (const auto& [name, tensor] : t) {
    names.push_back(name);
    sources.emplace(name, TensorSource(tensor.dtype(), tensor.shape(),
                                       [&, &name = name, &tensor = tensor] {
                                         order.push_back(name);
                                         return tensor;
                                       }));
  }
  WriteSafetensors(dir / "a.safetensors", sources, {{"k", "v"}});
  EXPECT_NE(order, names);
  order.clear();
  WriteSafetensorsByName(dir / "b.safetensors", sources, {{"k", "v"}});
  EXPECT_EQ(order, names);
  EXPECT_EQ(ReadText(dir / "b.safetensors"), ReadText(dir / "a.safetensors"));
  WriteSafetensorsByName(dir / "c.safetensors", {});
  EXPECT_TRUE(ReadSafetensors(dir / "c.safetensors").empty());
}

TEST(Safetensors, WritesNothingAndReadsNothing) {
  TempDir dir;
  WriteSafetensors(dir / "a.safetensors", {});
  EXPECT_TRUE(ReadSafetensors(dir / "a.safetensors").empty());
}

TEST(Safetensors, RefusesToWriteWhatHasNoForm) {
  TempDir dir;
  std::string path = dir / "a.safetensors";
  Tensor x = Tensor::Zeros(DType::kFloat, {1});
  ExpectError([&] { WriteSafetensors(path, {{"a", Tensor()}}); }, "numeric");
  ExpectError([&] { WriteSafetensors(path, {{"\xff", x}}); }, "UTF-8");
  ExpectError(
      [&] {
        WriteSafetensors(path, {{"__metadata__", x}});
      },
      "__metadata__");
  ExpectError(
      [&] {
        WriteSafetensors(dir / "no/such/a", {{"x", x}});
      },
      "can't be created: No such file");
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

TEST(Safetensors, AFailedWriteKeepsTheOldFile) {
  TempDir dir;
  std::string path = dir / "a.safetensors";
  WriteSafetensors(path, {{"x", Tensor::Scalar(1.0f)}});
  std::string old = ReadText(path);
  // A limit on file sizes acts like a full disk.
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small{1000, before.rlim_max};
  auto handler = signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  std::string text = ErrorOf([&] {
    WriteSafetensors(path, {{"x", Tensor::Zeros(DType::kFloat, {1000})}});
  });
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, handler);
  EXPECT_NE(text.find("can't be written: File too large"), std::string::npos)
      << text;
  EXPECT_EQ(ReadText(path), old);
  auto entries = std::filesystem::directory_iterator(dir.path());
  EXPECT_EQ(std::distance(begin(entries), end(entries)), 1);
}

struct Case {
  const char* header;
  const char* data;
  const char* message;
};

TEST(Safetensors, RefusesMalformedHeaders) {
  const Case cases[] = {
      {"", "", "JSON object"},
      {"[]", "", "JSON object"},
      {"{", "", "JSON object"},
      {"{\"\xff\": 1}", "", "JSON object"},
      {R"({"a": 1})", "", "a] expected an object with dtype"},
      {R"({"a": {"dtype": "U8", "shape": [1]}})", "x", "data_offsets"},
      {R"({"a": {"dtype": 8, "shape": [1], "data_offsets": [0, 1]}})", "x",
       "string as dtype"},
      {R"({"a": {"dtype": "C64", "shape": [1], "data_offsets": [0, 8]}})",
       "12345678", "a] expected a known dtype, got \"C64\""},
      {R"({"a": {"dtype": "U8", "shape": 1, "data_offsets": [0, 1]}})", "x",
       "list as shape"},
      {R"({"a": {"dtype": "U8", "shape": [-1], "data_offsets": [0, 1]}})", "x",
       "whole numbers"},
      {R"({"a": {"dtype": "U8", "shape": [1.5], "data_offsets": [0, 1]}})", "x",
       "whole numbers"},
      {R"({"a": {"dtype": "U8", "shape": [1], "data_offsets": [1, 0]}})", "x",
       "[begin, end]"},
      {R"({"a": {"dtype": "U8", "shape": [1], "data_offsets": [0]}})", "x",
       "[begin, end]"},
      {R"({"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 2]}})", "x",
       "truncated?"},
      {R"({"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}})", "xy",
       "expected 1 bytes of data, got 2"},
      {R"({"a": {"dtype": "U8", "shape": [1], "data_offsets": [1, 2]}})", "xy",
       "(hole)"},
      {R"({"a": {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]},
           "b": {"dtype": "U8", "shape": [2], "data_offsets": [1, 3]}})",
       "xyz", "(overlap)"},
      {R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}})",
       "1234", "a] expected float[2] in 4 bytes"},
      {R"({"a": {"dtype": "F32", "shape": [4611686018427387904, 4],
           "data_offsets": [0, 0]}})",
       "", "less than 2^63"},
      {R"({"a": {"dtype": "F64", "shape": [2305843009213693952],
           "data_offsets": [0, 0]}})",
       "", "in 0 bytes"},
      {R"({"a": {"dtype": "BOOL", "shape": [1], "data_offsets": [0, 1]}})", "x",
       "0 or 1, got 120"},
      {R"({"a": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]},
           "a": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}})",
       "", "\"a\" twice"},
      {R"({"__metadata__": 1})", "", "object as __metadata__"},
      {R"({"__metadata__": {"a": 1}})", "", "strings in __metadata__"},
  };
  for (const Case& c : cases) {
    std::string text = ErrorOfFile(File(c.header, c.data));
    EXPECT_NE(text.find(c.message), std::string::npos)
        << c.header << "\nexpected: " << c.message << "\ngot:      " << text;
    EXPECT_NE(text.find("a.safetensors"), std::string::npos) << text;
  }
}

TEST(Safetensors, RefusesWrongHeaderLengths) {
  EXPECT_NE(ErrorOfFile("1234567"), "");
  for (uint64_t size : {uint64_t{3}, uint64_t{1} << 40, ~uint64_t{0}}) {
    std::string bytes = File("{}");
    std::memcpy(bytes.data(), &size, 8);
    EXPECT_NE(ErrorOfFile(bytes).find("header length"), std::string::npos);
  }
  // As deep as a hostile header can nest.
  std::string deep(100000, '[');
  EXPECT_NE(ErrorOfFile(File(deep)).find("JSON object"), std::string::npos);
}

TEST(Safetensors, DamageNeverCrashes) {
  TempDir dir;
  ReadDamagedFiles(ReadText(FixtureFile("arrays.safetensors")),
                   dir / "a.safetensors",
                   [](const std::string& path) { ReadSafetensors(path); });
}

}  // namespace
}  // namespace onnx_fp8
