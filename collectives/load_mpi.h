// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "collectives/launcher.h"
#include "collectives/load_module.h"

namespace onnx_fp8 {

// The group of all ranks of this job, over MPI. The module with MPI is opened
// only here, from the first of `folders` that has it. A process can do so once.
// When the communicator is destroyed, it waits for the other ranks, unless an
// exception is under way. Call Abort then: the others may wait for this rank.
//
// Errors: no folder has the module, or it can't be opened; MPI can't start;
// MPI's ranks are not `launcher`'s, because another MPI started them; their
// number is not `ranks`.
std::unique_ptr<Communicator> LoadMpi(
    int ranks, const std::optional<Launcher>& launcher,
    const std::vector<std::string>& folders = ModuleFolders(),
    size_t message_bytes = Communicator::kMessageBytes);

}  // namespace onnx_fp8
