// SPDX-License-Identifier: Apache-2.0
//
// Helpers for tests of file formats.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "base/check.h"
#include "base/temporary_folder.h"
#include "tests/support/paths.h"

namespace onnx_fp8 {

using TempDir = TemporaryFolder;

inline std::string FixtureFile(const std::string& name) {
  return SourcePath("tests/training/data/" + name);
}

inline std::string ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void WriteText(const std::string& path, const std::string& text) {
  // Truncating an old file instead would make some file systems flush it.
  std::filesystem::remove(path);
  std::ofstream file(path, std::ios::binary);
  file << text;
  EXPECT_TRUE(file.flush()) << path;
}

// Names of the files and folders in a folder.
inline std::set<std::string> NamesIn(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.insert(entry.path().filename());
  }
  return names;
}

// The text of the Error that fn throws; "" if it throws none.
template <typename Fn>
std::string ErrorOf(Fn fn) {
  try {
    fn();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// EXPECTs that fn throws an Error whose text contains `part`.
template <typename Fn>
void ExpectError(Fn fn, const std::string& part) {
  std::string text = ErrorOf(fn);
  EXPECT_FALSE(text.empty()) << "no error; expected one with: " << part;
  EXPECT_NE(text.find(part), std::string::npos)
      << "expected: " << part << "\ngot:      " << text;
}

// Reads every truncation and many one-byte changes of `bytes` as a file of the
// same extension. For truncations `read` must throw Error; for changes it may,
// but must throw nothing else.
template <typename Fn>
void ReadDamagedFiles(const std::string& bytes, const std::string& path,
                      Fn read) {
  for (size_t size = 0; size < bytes.size(); ++size) {
    WriteText(path, bytes.substr(0, size));
    EXPECT_NE(ErrorOf([&] { read(path); }), "")
        << path << " cut to " << size << " bytes was read";
  }
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (int mask : {0x01, 0xff}) {
      std::string damaged = bytes;
      damaged[i] = static_cast<char>(damaged[i] ^ mask);
      WriteText(path, damaged);
      ErrorOf([&] { read(path); });
    }
  }
}

}  // namespace onnx_fp8
