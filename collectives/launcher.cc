// SPDX-License-Identifier: Apache-2.0
#include "collectives/launcher.h"

#include <charconv>
#include <string_view>

#include "base/check.h"

namespace onnx_fp8 {

int LauncherNumber(const char* variable, std::string_view text) {
  int value = -1;
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  Check(error == std::errc() && at == end && value >= 0, "[", variable,
        "] expected a number, got '", text, "'");
  return value;
}

std::optional<Launcher> FindLauncher(
    const std::function<const char*(const char*)>& variable) {
  struct Variables {
    const char *name, *size, *rank;
  };
  // mpirun of Open MPI inside of a Slurm job sets both; the innermost launcher
  // counts.
  for (const Variables& known :
       {Variables{"Open MPI", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"},
        Variables{"MPICH or Slurm", "PMI_SIZE", "PMI_RANK"}}) {
    const char *size = variable(known.size), *rank = variable(known.rank);
    if (!size || !rank) continue;
    return Launcher{known.name, LauncherNumber(known.size, size),
                    LauncherNumber(known.rank, rank)};
  }
  return std::nullopt;
}

}  // namespace onnx_fp8
