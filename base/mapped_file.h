// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/input_file.h"

namespace onnx_fp8 {

// A file's bytes, mapped privately: reading is lazy, writing never reaches the
// file. The mapping lives as long as `owner`. If somebody cuts the file
// meanwhile, a read of the missing bytes ends in SIGBUS.
struct MappedFile {
  std::shared_ptr<void> owner;
  std::byte* data = nullptr;
  size_t size = 0;
};

// Errors: InputFile's; the file can't be mapped.
MappedFile MapFile(const InputFile& file);
MappedFile MapFile(const std::string& path);
// `size` bytes of the file from `offset` on, which CopyMapped can read. Less
// than 1 MiB is read at once, because the system limits the number of mappings.
// REQUIRES: the bytes lie in the file. Errors: InputFile::Read's.
MappedFile MapPart(std::shared_ptr<const InputFile> file, uint64_t offset,
                   size_t size);

// As memcpy. Bytes of a part that MapPart has mapped are read from its file,
// not through the mapping: its pages take no memory, and a file that has become
// shorter is an error. REQUIRES: nobody has written to the mapping. Errors:
// InputFile::Read's.
void CopyMapped(const void* from, size_t size, void* to);

// Path of the file that MapFile has mapped at `address`; null if there is none.
// Takes no lock and allocates nothing: a handler of SIGBUS may call it.
const char* MappedFileAt(const void* address);

}  // namespace onnx_fp8
