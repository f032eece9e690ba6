// SPDX-License-Identifier: Apache-2.0
#include "cli/ranks.h"

#include <charconv>
#include <cstdlib>

#include "base/check.h"
#include "cli/flags.h"
#include "collectives/launcher.h"
#include "collectives/load_mpi.h"

namespace onnx_fp8 {

int64_t ParseMesh(const std::string& mesh) {
  constexpr std::string_view kAxis = "dp=";
  constexpr int64_t kMost = 65536;
  if (mesh.empty()) return 1;
  int64_t ranks = 0;
  bool fits = mesh.starts_with(kAxis);
  if (fits) {
    const char* end = mesh.data() + mesh.size();
    auto [at, error] = std::from_chars(mesh.data() + kAxis.size(), end, ranks);
    fits = error == std::errc() && at == end && ranks >= 1 && ranks <= kMost;
  }
  if (!fits) {
    throw UsageError(Concat("--mesh: expected dp=N with N in 1…", kMost,
                            ", got '", mesh, "'"));
  }
  return ranks;
}

std::unique_ptr<Communicator> OpenMesh(const std::string& mesh) {
  const int64_t ranks = ParseMesh(mesh);
  const std::optional<Launcher> launcher = FindLauncher(std::getenv);
  if (ranks == 1) {
    Check(!launcher || launcher->size == 1,
          "expected --mesh dp=", launcher ? launcher->size : 1, " for the ",
          launcher ? launcher->size : 1, " processes that ",
          launcher ? launcher->name : "", " has launched, got ",
          mesh.empty() ? "no mesh" : mesh);
    return nullptr;
  }
  return LoadMpi(static_cast<int>(ranks), launcher);
}

}  // namespace onnx_fp8
