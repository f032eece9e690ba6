// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
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

// Path of the file that MapFile has mapped at `address`; null if there is none.
// Takes no lock and allocates nothing: a handler of SIGBUS may call it.
const char* MappedFileAt(const void* address);

}  // namespace onnx_fp8
