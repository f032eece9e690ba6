// SPDX-License-Identifier: Apache-2.0
#include "base/mapped_file.h"

#include <gtest/gtest.h>

#include "tests/training/files.h"

namespace onnx_fp8 {
namespace {

std::string At(const void* address) {
  const char* path = MappedFileAt(address);
  return path ? path : "";
}

TEST(MappedFile, IsFoundByItsAddresses) {
  TempDir dir;
  WriteText(dir / "a", std::string(10'000, 'a'));
  WriteText(dir / "b", "b");
  MappedFile a = MapFile(dir / "a");
  MappedFile b = MapFile(dir / "b");
  EXPECT_EQ(At(a.data), dir / "a");
  EXPECT_EQ(At(a.data + a.size - 1), dir / "a");
  EXPECT_EQ(At(b.data), dir / "b");
  EXPECT_EQ(At(&a), "");
  EXPECT_EQ(At(nullptr), "");
}

TEST(MappedFile, IsForgottenWithItsLastOwner) {
  TempDir dir;
  WriteText(dir / "a", "a");
  WriteText(dir / "b", "b");
  const void* address = nullptr;
  {
    MappedFile a = MapFile(dir / "a");
    address = a.data;
    MappedFile copy = a;
    a = {};
    EXPECT_EQ(At(address), dir / "a");
  }
  EXPECT_EQ(At(address), "");
  // The place that noted it serves the next mapping.
  MappedFile b = MapFile(dir / "b");
  EXPECT_EQ(At(b.data), dir / "b");
}

}  // namespace
}  // namespace onnx_fp8
