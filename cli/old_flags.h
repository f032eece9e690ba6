// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/flags.h"

namespace onnx_fp8 {

// Translates flags that a run of an older version saved into flags of this
// version: --amax-history, --amax-algo, --margin and --scale-dtype became
// settings of the recipes. Errors: an impossible value or recipe.
void TranslateOldFlags(FlagMap* flags);

}  // namespace onnx_fp8
