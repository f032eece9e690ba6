// SPDX-License-Identifier: Apache-2.0
//
// Reading ZIP archives (PKWARE's APPNOTE 6.3), as far as NumPy writes them:
// stored or deflated members, zip64.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "training/file.h"

namespace onnx_fp8 {

struct ZipMember {
  std::string name;
  uint16_t method;  // 0 stored, 8 deflated
  uint32_t crc;
  uint64_t compressed;  // bytes in the archive
  uint64_t size;        // bytes of the member
  uint64_t offset;      // of its first byte in the archive
};

// Errors: not a complete archive, encrypted or otherwise compressed members, a
// name twice; all name the file.
std::vector<ZipMember> ListZip(const MappedFile& file);

struct Bytes {
  std::shared_ptr<void> owner;
  uint8_t* data;
  size_t size;
};

// Stored: the mapping itself; deflated: a copy. Errors: damaged content.
Bytes ReadZipMember(const std::shared_ptr<MappedFile>& file,
                    const ZipMember& member);

}  // namespace onnx_fp8
