// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace onnx_fp8 {

// Where ranks meet that torchrun has started, or a shell with its variables:
// rank 0 listens there.
struct MeetingPoint {
  // MASTER_ADDR: of rank 0's machine. The loopback, if LOCAL_WORLD_SIZE says
  // that all ranks are on one machine.
  std::string host;
  int port = 0;  // MASTER_PORT
  // torchrun itself listens at `port`. Rank 0 then takes the first free port
  // above it.
  bool port_is_taken = false;
  // Tells the jobs of a machine apart, and starts of one job.
  std::string job;
};

// The program that started this process as one of several, by its variables in
// the environment.
struct Launcher {
  std::string name;  // "Open MPI", "MPICH or Slurm", or "torchrun"
  int size = 0;
  int rank = 0;
  std::optional<MeetingPoint> meeting = {};  // torchrun's; others have MPI
};

// `variable` returns the value of a variable of the environment, or null; it is
// std::getenv but for tests. Nothing if no launcher is known.
// Errors: a size, rank or port that is no number; a rank that is not below the
// size; torchrun's WORLD_SIZE is above 1, and MASTER_ADDR or MASTER_PORT is not
// set.
std::optional<Launcher> FindLauncher(
    const std::function<const char*(const char*)>& variable);

// The number that a launcher's variable holds. Errors: it holds none, or one
// below 0.
int LauncherNumber(const char* variable, std::string_view text);

}  // namespace onnx_fp8
