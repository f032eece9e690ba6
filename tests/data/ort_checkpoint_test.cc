// SPDX-License-Identifier: Apache-2.0
//
// onnxruntime-training wrote the fixtures' checkpoints. test_ort_rewrite.py
// lets it read ours.
#include "data/ort_checkpoint.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "base/check.h"
#include "base/temporary_folder.h"
#include "tests/support/paths.h"

namespace onnx_fp8 {
namespace {

std::string Fixture(const std::string& name) {
  return SourcePath("tests/fixtures/ort_training/" + name + "/checkpoint");
}

std::string Bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string ErrorFor(const std::string& bytes) {
  TemporaryFolder folder;
  std::string path = folder / "c";
  std::ofstream(path, std::ios::binary) << bytes;
  try {
    ReadOrtCheckpoint(path);
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(path), std::string::npos);
    return error.what();
  }
  return "";
}

TEST(OrtCheckpoint, HoldsParametersInTheirOrder) {
  OrtCheckpoint c = ReadOrtCheckpoint(Fixture("mlp"));
  ASSERT_EQ(c.trained.size(), 6u);
  EXPECT_EQ(c.trained[0].first, "fc1.weight");
  EXPECT_TRUE(c.frozen.empty());
  EXPECT_TRUE(c.groups.empty());
  c = ReadOrtCheckpoint(Fixture("llama"));
  ASSERT_EQ(c.frozen.size(), 1u);
  EXPECT_EQ(c.frozen[0].first, "frequency");
  EXPECT_EQ(c.frozen[0].second.shape(), Shape{8});
  EXPECT_EQ(c.frozen[0].second.data<float>()[0], 1);
}

TEST(OrtCheckpoint, IsReadAsItWasWritten) {
  OrtCheckpoint c = ReadOrtCheckpoint(Fixture("llama"));
  c.ints["steps"] = int64_t{1} << 40;
  c.floats["lr"] = 0.5f;
  c.strings["recipe"] = "delayed";
  Tensor moment = Tensor::Scalar(2.0f).Reshaped({1});
  c.groups = {{"group0", 7, 0.25f, {{"w", {{"momentum0", moment}}}}}};
  c.frozen.emplace_back("codes", Tensor::Zeros(DType::kE4M3, {3, 0, 2}));
  TemporaryFolder folder;
  WriteOrtCheckpoint(c, folder / "c");
  OrtCheckpoint again = ReadOrtCheckpoint(folder / "c");
  auto expect_same = [](const NamedTensors& a, const NamedTensors& b) {
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) {
      EXPECT_EQ(a[i].first, b[i].first);
      EXPECT_TRUE(Identical(a[i].second, b[i].second)) << a[i].first;
    }
  };
  expect_same(c.trained, again.trained);
  expect_same(c.frozen, again.frozen);
  EXPECT_EQ(c.ints, again.ints);
  EXPECT_EQ(c.floats, again.floats);
  EXPECT_EQ(c.strings, again.strings);
  ASSERT_EQ(again.groups.size(), 1u);
  EXPECT_EQ(again.groups[0].name, "group0");
  EXPECT_EQ(again.groups[0].step, 7);
  EXPECT_EQ(again.groups[0].initial_lr, 0.25f);
  ASSERT_EQ(again.groups[0].parameters.size(), 1u);
  EXPECT_EQ(again.groups[0].parameters[0].parameter, "w");
  expect_same(c.groups[0].parameters[0].moments,
              again.groups[0].parameters[0].moments);
}

TEST(OrtCheckpoint, DamageIsNamed) {
  std::string bytes = Bytes(Fixture("mlp"));
  EXPECT_NE(ErrorFor("").find("got another file"), std::string::npos);
  EXPECT_NE(ErrorFor("PK\3\4 a zip file").find("got another file"),
            std::string::npos);
  EXPECT_NE(ErrorFor(bytes.substr(0, bytes.size() / 2)).find("truncated"),
            std::string::npos);
  std::string shape = bytes;  // of fc1.weight: 40 x 24
  const int64_t dims[] = {40, 24}, others[] = {41, 24};
  size_t at = shape.find(
      std::string_view(reinterpret_cast<const char*>(dims), sizeof dims));
  ASSERT_NE(at, std::string::npos);
  shape.replace(
      at, sizeof others,
      std::string_view(reinterpret_cast<const char*>(others), sizeof others));
  EXPECT_NE(ErrorFor(shape).find("fc1.weight] expected 984 elements"),
            std::string::npos);
}

// No byte that changes may lead outside the file.
TEST(OrtCheckpoint, AnyByteMayBeAnother) {
  std::string bytes = Bytes(Fixture("mlp"));
  TemporaryFolder folder;
  std::string path = folder / "c";
  int refused = 0;
  for (size_t i = 0; i < bytes.size(); i += 61) {
    std::string other = bytes;
    other[i] = static_cast<char>(~other[i]);
    std::ofstream(path, std::ios::binary) << other;
    try {
      ReadOrtCheckpoint(path);
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 0);
}

TEST(OrtCheckpoint, AnotherVersionIsNamed) {
  TemporaryFolder folder;
  OrtCheckpoint c = ReadOrtCheckpoint(Fixture("mlp"));
  WriteOrtCheckpoint(c, folder / "c");
  std::string bytes = Bytes(folder / "c");
  // The version is the only int32 of value 2 in the root table.
  uint32_t root;
  std::memcpy(&root, bytes.data(), 4);
  size_t at = bytes.find(std::string_view("\2\0\0\0", 4), root);
  ASSERT_NE(at, std::string::npos);
  bytes[at] = 1;
  EXPECT_NE(ErrorFor(bytes).find("expected a checkpoint of version 2, got 1"),
            std::string::npos);
}

}  // namespace
}  // namespace onnx_fp8
