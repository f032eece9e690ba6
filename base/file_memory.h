// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace onnx_fp8 {

// `bytes` zeros in a new file of `folder`, which the file and the memory share:
// when memory gets short, the system writes pages to the disk, and reads them
// when they are needed again. The disk has room for all of them from the start.
// The file has no name when this returns, so it goes with its memory, however
// the process ends. A forked process does not have the memory: its writes would
// change its parent's. REQUIRES: bytes > 0. Errors: the folder does not exist
// or nobody may write there; the disk has no room; the file can't be mapped.
std::shared_ptr<void> AllocateInFile(const std::string& folder, size_t bytes);

}  // namespace onnx_fp8
