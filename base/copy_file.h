// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/file.h"
#include "base/input_file.h"

namespace onnx_fp8 {

// Called with the number of bytes that are done, about every 64 MiB and at the
// end. An exception from it ends the work.
using ByteProgress = std::function<void(uint64_t done)>;

// Copies `from` to `to`; the file system may let them share blocks, and holes
// stay holes. `to` keeps its old content, or stays missing, until the copy is
// complete. Errors: a file can't be read or written (on a full disk the message
// names `to`); nothing of the new file is left.
void CopyFileAtomically(const InputFile& from, const std::string& to,
                        const ByteProgress& progress = {},
                        const FileHook& hook = {});

// True if the files hold the same bytes. Reads both piece by piece. Errors: one
// can't be read.
bool SameContent(const InputFile& a, const InputFile& b,
                 const ByteProgress& progress = {});

}  // namespace onnx_fp8
