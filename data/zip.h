// SPDX-License-Identifier: Apache-2.0
//
// Reads ZIP archives (PKWARE's APPNOTE 6.3) as far as NumPy writes them: stored
// or deflated members, zip64.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/mapped_file.h"

namespace onnx_fp8 {

struct ZipMember {
  std::string name;
  uint16_t method;  // 0 stored, 8 deflated
  uint32_t crc;
  uint64_t compressed;  // bytes in the archive
  uint64_t size;        // bytes of the member
  uint64_t offset;      // of its first byte in the archive
  uint64_t header;      // of its local header, which comes earlier
};

struct Bytes {
  std::shared_ptr<void> owner;
  uint8_t* data = nullptr;
  size_t size = 0;
};

class ZipArchive {
 public:
  // Errors: an incomplete archive, encrypted or otherwise compressed members, a
  // name that occurs twice, members that share bytes with each other or the
  // directory; all name the file.
  explicit ZipArchive(const std::string& path);

  const std::vector<ZipMember>& members() const { return members_; }

  // Stored: a view of the mapping; deflated: a copy. Errors: damaged content.
  Bytes Read(const ZipMember& member) const;

 private:
  std::string path_;
  MappedFile file_;
  std::vector<ZipMember> members_;
};

}  // namespace onnx_fp8
