// SPDX-License-Identifier: Apache-2.0
//
// The messages in the records are read by TensorBoard itself in
// tests/python/test_tensorboard.py.
#include "training/run/event_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <numeric>
#include <string>

#include "tests/training/files.h"

namespace onnx_fp8 {
namespace {

std::string Ramp(int size) {
  std::string bytes(static_cast<size_t>(size), '\0');
  std::iota(bytes.begin(), bytes.end(), '\0');
  return bytes;
}

// RFC 3720, appendix B.4.
TEST(EventFile, Crc32cIsThatOfIscsi) {
  EXPECT_EQ(Crc32c(""), 0u);
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  EXPECT_EQ(Crc32c(Ramp(32)), 0x46dd794eu);
  std::string falling = Ramp(32);
  std::ranges::reverse(falling);
  EXPECT_EQ(Crc32c(falling), 0x113fdb5cu);
}

// tensorboard 2.21 has written these: summary/writer/record_writer.py.
TEST(EventFile, RecordsAreThoseOfTensorBoard) {
  using std::string_literals::operator""s;
  EXPECT_EQ(TfRecord("brain.Event:2"),
            "\x0d\0\0\0\0\0\0\0\x3c\x37\xb8\x34"
            "brain.Event:2\xee\x01\x06\x7c"s);
  EXPECT_EQ(TfRecord(""), "\0\0\0\0\0\0\0\0\x29\x03\x98\x07\xd8\xea\x82\xa2"s);
  const std::string data = Ramp(200) + Ramp(200);
  EXPECT_EQ(TfRecord(data), "\x90\x01\0\0\0\0\0\0\x90\x93\xa7\xa5"s + data +
                                "\x0f\x2a\x95\x63");
}

StepMetrics EventMetrics(int64_t step) {
  return {.step = step, .loss = 2.5, .lr = 0.001, .samples_per_second = 12.5};
}

// The data of the records of a file, whose checksums must be right.
std::vector<std::string> RecordsIn(const std::string& path) {
  const std::string bytes = ReadText(path);
  std::vector<std::string> records;
  for (size_t at = 0; at < bytes.size();) {
    const auto size = static_cast<uint8_t>(bytes[at]);  // below 256
    records.push_back(bytes.substr(at + 12, size));
    EXPECT_EQ(bytes.substr(at, size + 16), TfRecord(records.back()));
    at += size + 16;
  }
  return records;
}

TEST(EventFile, StartsOfOneSecondHaveNamesInOrder) {
  TempDir dir;
  const std::string folder = dir / "new/events";
  std::set<std::string> names;
  for (int start = 0; start < 3; ++start) {
    EventFile(folder, start).Append(EventMetrics(start + 1));
    std::set<std::string> now = NamesIn(folder);
    EXPECT_EQ(now.size(), names.size() + 1);
    for (const std::string& name : names) now.erase(name);
    ASSERT_EQ(now.size(), 1u);
    EXPECT_TRUE(names.empty() || *names.rbegin() < *now.begin());
    names.insert(*now.begin());
  }
  // The clock was set back since, and other files are of no account.
  WriteText(folder + "/events.out.tfevents.4000000000.host.1", "");
  WriteText(folder + "/events.out.tfevents.x", "");
  WriteText(folder + "/notes", "");
  EventFile(folder, 3).Append(EventMetrics(4));
  bool found = false;
  for (const std::string& name : NamesIn(folder)) {
    found |= name.starts_with("events.out.tfevents.4000000001.");
  }
  EXPECT_TRUE(found);
}

TEST(EventFile, AFullDiskLeavesWholeRecords) {
  TempDir dir;
  EventFile file(dir / "events", 0);
  const std::string path = dir / "events/" + *NamesIn(dir / "events").begin();
  // A limit on file sizes acts like a full disk.
  auto append = [&](int64_t step, rlim_t limit) {
    rlimit before;
    ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
    const rlimit small{limit, before.rlim_max};
    auto handler = signal(SIGXFSZ, SIG_IGN);
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    const std::string error = ErrorOf([&] { file.Append(EventMetrics(step)); });
    setrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, handler);
    EXPECT_NE(error.find(path + "] can't be written: File too large"),
              std::string::npos)
        << error;
  };
  append(1, 20);
  EXPECT_EQ(ReadText(path), "");
  file.Append(EventMetrics(1));
  ASSERT_EQ(RecordsIn(path).size(), 3u);
  EXPECT_NE(RecordsIn(path)[0].find("brain.Event:2"), std::string::npos);
  const std::string whole = ReadText(path);
  append(2, whole.size() + 20);
  EXPECT_EQ(ReadText(path), whole);
  file.Append(EventMetrics(2));
  EXPECT_EQ(RecordsIn(path).size(), 4u);
}

TEST(EventFile, RefusesWhatCanBeNoFolder) {
  TempDir dir;
  WriteText(dir / "file", "");
  for (const char* name : {"file", "file/events"}) {
    ExpectError([&] { CheckEventFolder(dir / name); },
                Concat("[", dir / name,
                       "] expected a folder for files of "
                       "TensorBoard, got a file: ",
                       dir / "file"));
    ExpectError([&] { EventFile(dir / name, 0); }, "can't be created: ");
  }
  CheckEventFolder(dir / "new/events/");
  CheckEventFolder(dir / ".");
  EXPECT_EQ(NamesIn(dir / "."), std::set<std::string>{"file"});
}

}  // namespace
}  // namespace onnx_fp8
