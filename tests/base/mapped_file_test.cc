// SPDX-License-Identifier: Apache-2.0
#include "base/mapped_file.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>

#include "tests/training/files.h"

namespace onnx_fp8 {
namespace {

std::string At(const void* address) {
  const char* path = MappedFileAt(address);
  return path ? path : "";
}

constexpr size_t kMebibyte = size_t{1} << 20;

// Bytes that repeat after a prime number of them.
std::string Pattern(size_t size) {
  std::string text(size, '\0');
  for (size_t i = 0; i < size; ++i) text[i] = static_cast<char>(i % 251);
  return text;
}

std::shared_ptr<const InputFile> Opened(const std::string& path) {
  return std::make_shared<const InputFile>(path);
}

std::string_view TextOf(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.data), file.size};
}

// Kibibytes of the mapping at `address` that are in this process' memory.
int64_t Resident(const void* address) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  std::ifstream smaps("/proc/self/smaps");
  bool inside = false;
  for (std::string line; std::getline(smaps, line);) {
    uintptr_t begin = 0, end = 0;
    long kibibytes = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) {
      inside = begin <= at && at < end;
    } else if (inside &&
               std::sscanf(line.c_str(), "Rss: %ld kB", &kibibytes) == 1) {
      return kibibytes;
    }
  }
  return -1;
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

TEST(MapPart, BeginsAnywhere) {
  TempDir dir;
  const std::string text = Pattern(3 * kMebibyte);
  WriteText(dir / "a", text);
  const auto file = Opened(dir / "a");
  for (size_t offset : {size_t{0}, size_t{4096}, size_t{5001}}) {
    for (size_t size : {size_t{0}, size_t{100}, kMebibyte - 1, kMebibyte,
                        text.size() - offset}) {
      SCOPED_TRACE(testing::Message() << size << " bytes from " << offset);
      const MappedFile part = MapPart(file, offset, size);
      EXPECT_EQ(TextOf(part), std::string_view(text).substr(offset, size));
      // The system limits the number of mappings.
      EXPECT_EQ(At(part.data), size < kMebibyte ? "" : dir / "a");
    }
  }
}

TEST(MapPart, IsForgottenWithItsLastOwner) {
  TempDir dir;
  WriteText(dir / "a", Pattern(3 * kMebibyte));
  MappedFile first = MapPart(Opened(dir / "a"), 0, kMebibyte);
  MappedFile second = MapPart(Opened(dir / "a"), kMebibyte, kMebibyte);
  const void* address = first.data;
  first = {};
  EXPECT_EQ(At(address), "");
  EXPECT_EQ(At(second.data), dir / "a");
}

// A copy of a part reads the file: no page of the mapping gets into memory.
TEST(CopyMapped, TakesNoMemoryOfThePart) {
  TempDir dir;
  const std::string text = Pattern(3 * kMebibyte);
  WriteText(dir / "a", text);
  const MappedFile part = MapPart(Opened(dir / "a"), 5001, 2 * kMebibyte);
  std::string copy(2 * kMebibyte - 13, '\0');
  CopyMapped(part.data + 13, copy.size(), copy.data());
  EXPECT_EQ(copy, text.substr(5001 + 13, copy.size()));
  EXPECT_EQ(Resident(part.data), 0);
  EXPECT_EQ(TextOf(part), std::string_view(text).substr(5001, part.size));
  EXPECT_GE(Resident(part.data), 2048);
}

TEST(CopyMapped, SaysThatTheFileBecameShorter) {
  TempDir dir;
  WriteText(dir / "a", Pattern(3 * kMebibyte));
  const MappedFile part = MapPart(Opened(dir / "a"), kMebibyte, 2 * kMebibyte);
  std::filesystem::resize_file(dir / "a", 2 * kMebibyte);
  std::string copy(2 * kMebibyte, '\0');
  CopyMapped(part.data, kMebibyte, copy.data());  // this much is left
  ExpectError([&] { CopyMapped(part.data, copy.size(), copy.data()); },
              "[" + (dir / "a") + "] became shorter while it was read");
}

TEST(CopyMapped, CopiesOtherBytesAsTheyAre) {
  TempDir dir;
  const std::string text = Pattern(2 * kMebibyte);
  WriteText(dir / "a", text);
  MappedFile whole = MapFile(dir / "a");
  whole.data[7] = std::byte{1};  // in this mapping alone
  std::string copy(text.size(), '\0');
  CopyMapped(whole.data, copy.size(), copy.data());
  EXPECT_EQ(copy, TextOf(whole));
  CopyMapped(text.data(), text.size(), copy.data());
  EXPECT_EQ(copy, text);
  CopyMapped(nullptr, 0, nullptr);
}

}  // namespace
}  // namespace onnx_fp8
