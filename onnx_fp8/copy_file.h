// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "onnx_fp8/file.h"
#include "onnx_fp8/input_file.h"

namespace onnx_fp8 {

// Told the bytes of the file that are done, about every 64 MiB and at the end.
// What it throws ends the work.
using ByteProgress = std::function<void(uint64_t done)>;

// Writes `to`, which the same file system may share with `from`; holes stay
// holes. `to` has its old content, or none, until all is there. Errors: files
// that can't be read or written (`to` is named on a full disk); nothing of the
// new file is left.
void CopyFileAtomically(const InputFile& from, const std::string& to,
                        const ByteProgress& progress = {},
                        const FileHook& hook = {});

// True if the files hold the same bytes, which are read piece by piece.
// Errors: one can't be read.
bool SameContent(const InputFile& a, const InputFile& b,
                 const ByteProgress& progress = {});

}  // namespace onnx_fp8
