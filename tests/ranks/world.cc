// SPDX-License-Identifier: Apache-2.0
#include "tests/ranks/world.h"

#include <cstdlib>

#include "collectives/load_module.h"
#include "collectives/load_mpi.h"

namespace onnx_fp8 {

Communicator& World() {
  static const std::unique_ptr<Communicator> ranks = [] {
    const std::optional<Launcher> launcher = FindLauncher(std::getenv);
    return LoadMpi(launcher ? launcher->size : 1, launcher, ModuleFolders(),
                   1000);
  }();
  return *ranks;
}

}  // namespace onnx_fp8
