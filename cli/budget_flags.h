// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "cli/flags.h"
#include "onnx_fp8/budgets.h"

namespace onnx_fp8 {

// --budget of the commands that read models or arrays. It counts for the one
// command: a run's folder, which may come from somebody else, does not hold it.
struct BudgetFlags {
  std::vector<std::string> words;  // NAME=N

  void AddTo(Flags& flags);
  // The defaults with what was given. Errors: UsageError.
  Budgets Make() const;
};

}  // namespace onnx_fp8
