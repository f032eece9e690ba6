// SPDX-License-Identifier: Apache-2.0
#include "cli/ranks.h"

#include <cstdlib>

#include "base/check.h"
#include "cli/flags.h"
#include "collectives/launcher.h"
#include "collectives/load_mpi.h"
#include "collectives/tcp_ranks.h"

namespace onnx_fp8 {

Mesh MeshOf(const std::string& flag) {
  if (flag.empty()) return {};
  try {
    return ParseMesh(flag);
  } catch (const Error& error) {
    throw UsageError(std::string("--mesh: ") + error.what());
  }
}

std::unique_ptr<Communicator> OpenWorld(const std::string& flag) {
  const int64_t ranks = MeshOf(flag).ranks();
  const std::optional<Launcher> launcher = FindLauncher(std::getenv);
  if (ranks == 1) {
    Check(!launcher || launcher->size == 1,
          "expected --mesh dp=", launcher ? launcher->size : 1, " for the ",
          launcher ? launcher->size : 1, " processes that ",
          launcher ? launcher->name : "", " has launched, got ",
          flag.empty() ? "no mesh" : flag);
    return nullptr;
  }
  return launcher && launcher->meeting
             ? ConnectRanks(static_cast<int>(ranks), *launcher)
             : LoadMpi(static_cast<int>(ranks), launcher);
}

}  // namespace onnx_fp8
