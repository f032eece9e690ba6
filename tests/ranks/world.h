// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/communicator.h"

namespace onnx_fp8 {

// All ranks of mpirun. MPI starts once in a process, at the first call. Short
// messages cut longer data.
Communicator& World();

}  // namespace onnx_fp8
