// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "collectives/communicator.h"

namespace onnx_fp8 {

// Ranks of `--mesh dp=N`; 1 for "". Errors: UsageError for other words.
int64_t ParseMesh(const std::string& mesh);

// The ranks of this job; null for a mesh of one. Errors: LoadMpi's; a launcher
// started several processes, and there is no mesh: each would train alone, all
// in one folder.
std::unique_ptr<Communicator> OpenMesh(const std::string& mesh);

}  // namespace onnx_fp8
