// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "collectives/communicator.h"
#include "collectives/mesh.h"

namespace onnx_fp8 {

// The mesh of `--mesh`; one rank for "". Errors: UsageError for other words.
Mesh MeshOf(const std::string& flag);

// The ranks of this job: over TCP if torchrun's variables say so, and otherwise
// over MPI; null for a mesh of one. Errors: ConnectRanks' or LoadMpi's; a
// launcher started several processes, and there is no mesh: each would train
// alone, all in one folder.
std::unique_ptr<Communicator> OpenWorld(const std::string& flag);

}  // namespace onnx_fp8
