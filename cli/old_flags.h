// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/flags.h"

namespace onnx_fp8 {

// Puts flags that a run of an older version saved into the words of this one:
// --amax-history, --amax-algo, --margin and --scale-dtype, which are settings
// of the recipes. Errors: a value or a recipe that can't be.
void TranslateOldFlags(FlagMap* flags);

}  // namespace onnx_fp8
