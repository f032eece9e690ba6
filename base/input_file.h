// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/descriptor.h"

namespace onnx_fp8 {

// The end of the message about a file that someone cuts while it is read.
inline constexpr char kBecameShorter[] =
    " became shorter while it was read, or its disk failed: expected a file "
    "that stays as it is until the program ends";

// A regular file, open for reading.
class InputFile {
 public:
  // Errors: no such file, not a regular one, no permission; all name the path.
  explicit InputFile(const std::string& path);
  // `location` below `folder`; another file gave that name. Errors: as above;
  // `location` is absolute or holds ".."; a link at its end or on the way,
  // which might lead anywhere. The path of the folder itself may hold links.
  InputFile(const std::string& folder, const std::string& location);

  const std::string& path() const { return path_; }
  int fd() const { return fd_.get(); }
  // The size when the file was opened.
  uint64_t size() const { return size_; }

  // Fills the buffer from `at` on. Errors: the disk; the file ends before that.
  void Read(char* buffer, size_t count, uint64_t at) const;
  // Errors: the file has fewer bytes than when it was opened.
  void CheckWhole() const;

 private:
  // Takes the descriptor.
  InputFile(std::string path, int fd);

  std::string path_;
  Descriptor fd_;
  uint64_t size_ = 0;
};

// All bytes of a file. Errors: InputFile's; it has more than `most` bytes.
std::string ReadText(const InputFile& file, uint64_t most);
std::string ReadText(const std::string& path, uint64_t most);

}  // namespace onnx_fp8
