// SPDX-License-Identifier: Apache-2.0
#include "data/token_file.h"

#include <gtest/gtest.h>

#include "tests/training/files.h"

namespace onnx_fp8 {
namespace {

std::string Bytes16(const std::vector<uint16_t>& tokens) {
  return {reinterpret_cast<const char*>(tokens.data()), tokens.size() * 2};
}

TEST(TokenFile, ReadsBothWidths) {
  TempDir dir;
  WriteText(dir / "a.bin", Bytes16({1, 0, 65535, 3}));
  Tensor narrow = ReadTokens(dir / "a.bin", DType::kUInt16);
  EXPECT_EQ(ToInts(narrow), (std::vector<int64_t>{1, 0, 65535, 3}));
  Tensor wide = ReadTokens(dir / "a.bin", DType::kUInt32);
  EXPECT_EQ(ToInts(wide), (std::vector<int64_t>{1, 65535 + 3 * 65536}));
}

TEST(TokenFile, WindowsShareTheirLastToken) {
  TempDir dir;
  WriteText(dir / "a.bin", Bytes16({10, 11, 12, 13, 14, 15, 16, 17}));
  Tensor tokens = ReadTokens(dir / "a.bin", DType::kUInt16);
  ASSERT_EQ(NumWindows(tokens, 3), 2);
  std::vector<int64_t> inputs(3), labels(3);
  CopyWindow(tokens, 3, 1, inputs.data(), labels.data());
  EXPECT_EQ(inputs, (std::vector<int64_t>{13, 14, 15}));
  EXPECT_EQ(labels, (std::vector<int64_t>{14, 15, 16}));
  EXPECT_EQ(NumWindows(tokens, 7), 1);
  EXPECT_EQ(NumWindows(tokens, 8), 0);
}

TEST(TokenFile, MarksTheDocumentsOfARow) {
  // 0 ends a document; an empty one is its end alone.
  const std::vector<int64_t> tokens = {7, 8, 0, 0, 9, 0, 5};
  std::vector<int64_t> labels = {8, 0, 0, 9, 0, 5, 6};
  std::vector<int64_t> numbers(7), places(7);
  MarkDocuments(tokens.data(), 7, 0, -1, numbers.data(), places.data(),
                labels.data());
  EXPECT_EQ(numbers, (std::vector<int64_t>{0, 0, 0, 1, 2, 2, 3}));
  EXPECT_EQ(places, (std::vector<int64_t>{0, 1, 2, 0, 0, 1, 0}));
  EXPECT_EQ(labels, (std::vector<int64_t>{8, 0, -1, -1, 0, -1, 6}));
}

TEST(TokenFile, RefusesOtherFiles) {
  TempDir dir;
  std::string path = dir / "a.bin";
  WriteText(path, "123");
  ExpectError([&] { ReadTokens(path, DType::kUInt16); },
              "a.bin] expected uint16 tokens, got a file of 3 bytes");
  WriteText(path, "");
  ExpectError([&] { ReadTokens(path, DType::kUInt16); }, "0 bytes");
  ExpectError([&] { ReadTokens(path, DType::kInt64); },
              "expected token type uint16 or uint32, got int64");
}

}  // namespace
}  // namespace onnx_fp8
