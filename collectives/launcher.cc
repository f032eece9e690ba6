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

namespace {

using Variable = std::function<const char*(const char*)>;

std::optional<Launcher> FindRank(const Variable& variable, const char* name,
                                 const char* size_name, const char* rank_name) {
  const char *size = variable(size_name), *rank = variable(rank_name);
  if (!size || !rank) return std::nullopt;
  const Launcher found{name, LauncherNumber(size_name, size),
                       LauncherNumber(rank_name, rank), std::nullopt};
  Check(found.rank < found.size, "[", rank_name, "] expected a number below ",
        size_name, ", ", found.size, ", got ", found.rank);
  return found;
}

// The values of these variables, joined.
std::string Values(const Variable& variable,
                   std::initializer_list<const char*> names) {
  std::string values;
  for (const char* name : names) {
    const char* value = variable(name);
    values += Concat(value ? value : "", "\n");
  }
  return values;
}

std::optional<Launcher> FindTorchrun(const Variable& variable) {
  auto found = FindRank(variable, "torchrun", "WORLD_SIZE", "RANK");
  if (!found || found->size == 1) return found;
  for (const char* name : {"MASTER_ADDR", "MASTER_PORT"}) {
    Check(variable(name) != nullptr, "[", name,
          "] expected where rank 0 listens, as WORLD_SIZE is ", found->size,
          ", got nothing");
  }
  MeetingPoint& meeting = found->meeting.emplace();
  meeting.host = variable("MASTER_ADDR");
  const char* near = variable("LOCAL_WORLD_SIZE");
  if (near && LauncherNumber("LOCAL_WORLD_SIZE", near) == found->size) {
    meeting.host = "127.0.0.1";
  }
  meeting.port = LauncherNumber("MASTER_PORT", variable("MASTER_PORT"));
  Check(meeting.port >= 1 && meeting.port <= 65535,
        "[MASTER_PORT] expected a port in 1…65535, got ", meeting.port);
  const char* shares = variable("TORCHELASTIC_USE_AGENT_STORE");
  meeting.port_is_taken = shares && std::string_view(shares) == "True";
  meeting.job = Values(variable, {"MASTER_PORT", "TORCHELASTIC_RUN_ID",
                                  "TORCHELASTIC_RESTART_COUNT"});
  return found;
}

}  // namespace

std::optional<Launcher> FindLauncher(const Variable& variable) {
  // The innermost launcher counts. mpirun of Open MPI and torchrun may run
  // inside of a Slurm job. Other programs set RANK, too: a cluster's operator
  // outside of mpirun, for example.
  std::optional<Launcher> found;
  if (variable("TORCHELASTIC_RUN_ID")) found = FindTorchrun(variable);
  if (!found) {
    found = FindRank(variable, "Open MPI", "OMPI_COMM_WORLD_SIZE",
                     "OMPI_COMM_WORLD_RANK");
  }
  if (!found) {
    found = FindRank(variable, "MPICH or Slurm", "PMI_SIZE", "PMI_RANK");
  }
  return found ? found : FindTorchrun(variable);
}

}  // namespace onnx_fp8
