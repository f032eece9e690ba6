// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "cli/flags.h"
#include "onnx_fp8/budgets.h"

namespace onnx_fp8 {

// --budget of the commands that read models or arrays. It holds for one
// command: a run's folder may come from somebody else, so the folder does not
// store it.
struct BudgetFlags {
  std::vector<std::string> words;  // NAME=N

  void AddTo(Flags& flags);
  // The defaults, changed by the given words. Errors: UsageError.
  Budgets Make() const;
};

}  // namespace onnx_fp8
