// SPDX-License-Identifier: Apache-2.0
#include "data/npy.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <numeric>

#include "data/arrays.h"
#include "tests/training/files.h"

namespace onnx_fp8 {
namespace {

Tensor X() {
  return Tensor::From<float>(
      {2, 3}, std::vector<float>{0, 0.25f, 0.5f, 0.75f, 1, 1.25f});
}

Tensor Cube() {
  std::vector<int32_t> values(24);
  std::iota(values.begin(), values.end(), 0);
  return Tensor::From<int32_t>({2, 3, 4}, values);
}

// An .npy file with this header and `data` zero bytes of data.
std::string Npy(const std::string& header, size_t data, int version = 1) {
  std::string text = "\x93NUMPY";
  text += {static_cast<char>(version), '\0'};
  size_t length = header.size();
  for (int i = 0; i < (version == 1 ? 2 : 4); ++i) {
    text += static_cast<char>(length >> (8 * i));
  }
  return text + header + std::string(data, '\0');
}

std::string ErrorOfNpy(const std::string& bytes) {
  TempDir dir;
  WriteText(dir / "a.npy", bytes);
  return ErrorOf([&] { ReadNpy(dir / "a.npy"); });
}

TEST(Npy, ReadsWhatNumPyWrote) {
  EXPECT_TRUE(Identical(ReadNpy(FixtureFile("fortran.npy")), Cube()));
  EXPECT_TRUE(Identical(ReadNpy(FixtureFile("big_endian.npy")), Cube()));
  EXPECT_TRUE(Identical(ReadNpy(FixtureFile("version2.npy")), X()));
  TensorMap one = ReadArrays(FixtureFile("version2.npy"));
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(one.begin()->first, "version2");
}

TEST(Npy, WritingToATensorLeavesTheFile) {
  std::string path = FixtureFile("version2.npy");
  Tensor first = ReadNpy(path);
  first.data<float>()[0] = 99;
  EXPECT_TRUE(Identical(ReadNpy(path), X()));
}

TEST(Npy, RefusesWhatIsNoArrayOfNumbers) {
  auto read = [](const char* name) {
    return ErrorOf([&] { ReadNpy(FixtureFile(name)); });
  };
  EXPECT_NE(read("objects.npy").find("Python objects"), std::string::npos);
  EXPECT_NE(read("records.npy").find("records"), std::string::npos);
  EXPECT_NE(read("complex.npy").find("\"<c8\""), std::string::npos);
  ExpectError([] { ReadNpy("/no/such.npy"); },
              "[/no/such.npy] can't be opened: No such file");
  ExpectError([] { ReadNpy("/tmp"); }, "[/tmp] expected a regular file");
  ExpectError([] { ReadArrays("data.pt"); }, ".npz, .npy or .safetensors");
}

TEST(Npy, DoesNotWaitForAPipe) {
  TempDir dir;
  std::string path = dir / "pipe.npy";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  ExpectError([&] { ReadNpy(path); }, "pipe.npy] expected a regular file");
}

TEST(Npy, RefusesDamagedHeaders) {
  const char* good =
      "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n";
  EXPECT_EQ(ErrorOfNpy(Npy(good, 24)), "");
  EXPECT_EQ(ErrorOfNpy(Npy(good, 24, 3)), "");
  for (const char* header : {
           "",
           "{",
           "{}",
           "[]",
           "{'descr': '<f4'}",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3}",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (2 3)}",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (2, -3)}",
           "{'descr': '<f4', 'fortran_order': False, "
           "'shape': (99999999999999999999,)}",
           "{'descr': '<f4', 'fortran_order': 0, 'shape': (2, 3)}",
           "{'descr': '<f4, 'fortran_order': False, 'shape': (2, 3)}",
           "{'other': '<f4'}",
       }) {
    EXPECT_NE(ErrorOfNpy(Npy(header, 24)).find("damaged .npy header"),
              std::string::npos)
        << header << ": " << ErrorOfNpy(Npy(header, 24));
  }
  EXPECT_NE(ErrorOfNpy(Npy(good, 24, 4)).find("format 1 to 3, got 4"),
            std::string::npos);
}

TEST(Npy, RefusesSizesThatDoNotFit) {
  auto with_shape = [](const std::string& shape) {
    return "{'descr': '<f4', 'fortran_order': True, 'shape': " + shape + "}";
  };
  EXPECT_NE(ErrorOfNpy(Npy(with_shape("(2, 3)"), 23)), "");
  EXPECT_NE(ErrorOfNpy(Npy(with_shape("(2, 3)"), 25)), "");
  EXPECT_NE(ErrorOfNpy(Npy(with_shape("(4611686018427387904,)"), 0)), "");
  EXPECT_NE(ErrorOfNpy(Npy(with_shape("(4294967296, 4294967296)"), 0)), "");
  EXPECT_EQ(ErrorOfNpy(Npy(with_shape("(0, 4611686018427387904)"), 0)), "");
  EXPECT_EQ(ErrorOfNpy(Npy(with_shape("()"), 4)), "");
  std::string many = "(";
  for (int i = 0; i < 65; ++i) many += "1, ";
  EXPECT_NE(ErrorOfNpy(Npy(with_shape(many + ")"), 4)), "");
}

TEST(Npy, RefusesABoolThatIsNone) {
  std::string bytes =
      Npy("{'descr': '|b1', 'fortran_order': False, 'shape': (3,)}", 2);
  EXPECT_EQ(ErrorOfNpy(bytes + '\1'), "");
  EXPECT_NE(ErrorOfNpy(bytes + '\7').find("0 or 1, got 7"), std::string::npos);
}

TEST(Npy, DamageNeverCrashes) {
  TempDir dir;
  for (const char* name : {"fortran.npy", "big_endian.npy"}) {
    ReadDamagedFiles(ReadText(FixtureFile(name)), dir / "a.npy",
                     [](const std::string& path) { ReadNpy(path); });
  }
}

void ExpectFixtureArrays(const TensorMap& arrays) {
  EXPECT_TRUE(Identical(arrays.at("x"), X()));
  EXPECT_TRUE(Identical(arrays.at("half"), ConvertTo(X(), DType::kFloat16)));
  EXPECT_TRUE(Identical(arrays.at("double"), ConvertTo(X(), DType::kDouble)));
  EXPECT_EQ(ToInts(arrays.at("labels")), (std::vector<int64_t>{3, -1}));
  EXPECT_EQ(arrays.at("bytes").shape(), (Shape{1, 2}));
  EXPECT_EQ(ToInts(arrays.at("bytes")), (std::vector<int64_t>{0, 255}));
  EXPECT_EQ(arrays.at("mask").dtype(), DType::kBool);
  EXPECT_EQ(ToInts(arrays.at("mask")), (std::vector<int64_t>{1, 0, 1}));
  EXPECT_EQ(arrays.at("scalar").rank(), 0);
  EXPECT_EQ(IntAt(arrays.at("scalar"), 0), 7);
  EXPECT_EQ(arrays.at("empty").shape(), (Shape{0, 3}));
  EXPECT_EQ(arrays.size(), 8u);
}

TEST(Npz, ReadsWhatNumPyWrote) {
  ExpectFixtureArrays(ReadArrays(FixtureFile("stored.npz")));
  ExpectFixtureArrays(ReadArrays(FixtureFile("deflated.npz")));
}

TEST(Npz, ReadsAStreamedArchive) {
  // Sizes in data descriptors and zip64 fields: Python's zipfile writes them to
  // a pipe.
  TensorMap arrays = ReadNpz(FixtureFile("streamed.npz"));
  EXPECT_TRUE(Identical(arrays.at("x"), X()));
}

TEST(Npz, ReadsZip64EndRecords) {
  // The same archive; all fields of its end record are moved to zip64's record.
  std::string bytes = ReadText(FixtureFile("stored.npz"));
  size_t end = bytes.size() - 22;
  auto number = [&](size_t at, int width) {
    uint64_t value = 0;
    std::memcpy(&value, bytes.data() + at, static_cast<size_t>(width));
    return std::string(reinterpret_cast<char*>(&value), 8);
  };
  uint64_t rest = 44, at64 = end;
  std::string end64 = "PK\6\6";
  end64 += std::string(reinterpret_cast<char*>(&rest), 8);
  end64 += std::string(12, '\0') + number(end + 10, 2) + number(end + 10, 2) +
           number(end + 12, 4) + number(end + 16, 4);
  std::string locator = std::string("PK\6\7") + std::string(4, '\0') +
                        std::string(reinterpret_cast<char*>(&at64), 8) +
                        std::string("\1\0\0\0", 4);
  std::string tail = std::string("PK\5\6") + std::string(4, '\0') +
                     std::string(12, '\xff') + std::string("\2\0hi", 4);
  TempDir dir;
  std::string zip64 = bytes.substr(0, end) + end64 + locator + tail;
  WriteText(dir / "a.npz", zip64);
  ExpectFixtureArrays(ReadNpz(dir / "a.npz"));
}

template <typename T>
T Get(const std::string& bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

template <typename T>
std::string Raw(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

TEST(Npz, ReadsZip64Entries) {
  // One entry whose sizes and offset are moved to its zip64 field, after a
  // field of another kind.
  std::string bytes = ReadText(FixtureFile("streamed.npz"));
  size_t end = bytes.size() - 22;
  size_t entry = Get<uint32_t>(bytes, end + 16);
  std::string extra = Raw(uint16_t{0x5455}) + Raw(uint16_t{1}) + "!" +
                      Raw(uint16_t{1}) + Raw(uint16_t{24});
  for (size_t at : {24, 20, 42}) {  // size, compressed, offset
    extra += Raw(uint64_t{Get<uint32_t>(bytes, entry + at)});
    bytes.replace(entry + at, 4, 4, '\xff');
  }
  ASSERT_EQ(Get<uint16_t>(bytes, entry + 30), 0);
  bytes.replace(entry + 30, 2, Raw(static_cast<uint16_t>(extra.size())));
  bytes.insert(end, extra);
  end += extra.size();
  bytes.replace(end + 12, 4, Raw(static_cast<uint32_t>(end - entry)));
  TempDir dir;
  WriteText(dir / "a.npz", bytes);
  EXPECT_TRUE(Identical(ReadNpz(dir / "a.npz").at("x"), X()));
  ReadDamagedFiles(bytes, dir / "b.npz",
                   [](const std::string& path) { ReadNpz(path); });
}

// The entries of an archive's directory.
std::vector<size_t> Entries(const std::string& bytes) {
  size_t end = bytes.size() - 22;
  std::vector<size_t> entries;
  for (size_t at = Get<uint32_t>(bytes, end + 16); at < end;) {
    entries.push_back(at);
    at += 46u + Get<uint16_t>(bytes, at + 28) + Get<uint16_t>(bytes, at + 30) +
          Get<uint16_t>(bytes, at + 32);
  }
  return entries;
}

// Otherwise many members could share a few bytes and become any number of
// arrays.
TEST(Npz, RefusesMembersThatShareBytes) {
  TempDir dir;
  std::string path = dir / "a.npz";
  for (const char* name : {"stored.npz", "deflated.npz"}) {
    std::string bytes = ReadText(FixtureFile(name));
    std::vector<size_t> entries = Entries(bytes);
    std::string shared = bytes;
    shared.replace(entries[1] + 42, 4, bytes, entries[0] + 42, 4);
    WriteText(path, shared);
    ExpectError([&] { NpzFile file(path); },
                ".npy] expected bytes of its own, got some that belong to \"");
    // One member reaches into the next by a byte, another into the directory.
    for (size_t i : {size_t{0}, entries.size() - 1}) {
      std::string longer = bytes;
      for (size_t field : {20, 24}) {
        auto size = Get<uint32_t>(bytes, entries[i] + field) + 1;
        longer.replace(entries[i] + field, 4, Raw(size));
      }
      WriteText(path, longer);
      ExpectError([&] { NpzFile file(path); },
                  i == 0 ? "got some that belong to \""
                         : "got some that belong to the ZIP directory");
    }
  }
}

TEST(Npz, ReadsWhatIsAskedFor) {
  TempDir dir;
  std::string path = dir / "a.npz";
  std::string edited = ReadText(FixtureFile("stored.npz"));
  edited[edited.find("labels.npy") + 160] ^= 1;  // within the array
  WriteText(path, edited);
  ArrayFile file(path);
  EXPECT_TRUE(std::ranges::is_sorted(file.names()));
  EXPECT_EQ(std::ranges::count(file.names(), "labels"), 1);
  EXPECT_TRUE(Identical(file.Read("x"), X()));
  ExpectError([&] { file.Read("labels"); }, "labels.npy] is damaged");
}

TEST(Npz, InflatesWithinItsBudget) {
  std::string path = FixtureFile("deflated.npz");
  int64_t all = 0, of_x = 0;
  ZipArchive archive(path);
  for (const ZipMember& member : archive.members()) {
    if (member.method == 0) continue;
    all += static_cast<int64_t>(member.size);
    if (member.name == "x.npy") of_x = static_cast<int64_t>(member.size);
  }
  ASSERT_GT(of_x, 0);
  ExpectFixtureArrays(ReadArrays(path, {.arrays = all}));
  ExpectError([&] { ReadArrays(path, {.arrays = all - 1}); },
              ".npy] expected at most ");
  ExpectError([&] { ReadArrays(path, {.arrays = all - 1}); },
              "`budget` arrays=N raises the budget \"arrays\"");
  // Arrays that nobody asks for cost nothing, nor do views of the file.
  EXPECT_TRUE(Identical(ArrayFile(path, {.arrays = of_x}).Read("x"), X()));
  ExpectFixtureArrays(ReadArrays(FixtureFile("stored.npz"), {.arrays = 0}));
}

TEST(Npz, NamesFileAndArrayOfADamage) {
  TempDir dir;
  std::string path = dir / "a.npz";
  std::string bytes = ReadText(FixtureFile("stored.npz"));
  size_t at = bytes.find("labels.npy");
  std::string edited = bytes;
  edited[at + 160] ^= 1;  // within the array
  WriteText(path, edited);
  ExpectError([&] { ReadNpz(path); },
              "a.npz: labels.npy] is damaged: its checksum does not fit");
  WriteText(path, bytes.substr(0, bytes.size() - 10));
  ExpectError([&] { ReadNpz(path); }, "a.npz] expected a ZIP file; its end");
}

TEST(Npz, DamageNeverCrashes) {
  TempDir dir;
  for (const char* name : {"stored.npz", "streamed.npz"}) {
    ReadDamagedFiles(ReadText(FixtureFile(name)), dir / "a.npz",
                     [](const std::string& path) { ReadNpz(path); });
  }
}

}  // namespace
}  // namespace onnx_fp8
