// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "providers/ort/ort_api.h"

namespace onnx_fp8 {

// The factory of our execution provider. One per call; the caller owns it.
OrtEpFactory* MakeEpFactory();
void DeleteEpFactory(OrtEpFactory* factory);

}  // namespace onnx_fp8
