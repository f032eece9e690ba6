// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace onnx_fp8 {

// The program that started this process as one of several, as its variables
// in the environment say.
struct Launcher {
  std::string name;  // "Open MPI", or "MPICH or Slurm"
  int size = 0;
  int rank = 0;
};

// `variable` returns the value of a variable of the environment, or null; it is
// std::getenv but for tests. Nothing if no launcher is known.
// Errors: a size or a rank that is no number.
std::optional<Launcher> FindLauncher(
    const std::function<const char*(const char*)>& variable);

// The number that a launcher's variable holds. Errors: it holds none, or one
// below 0.
int LauncherNumber(const char* variable, std::string_view text);

}  // namespace onnx_fp8
