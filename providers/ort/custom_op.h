// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "providers/ort/ort_api.h"

namespace onnx_fp8 {

// A custom op of the runtime: a table of functions. The base fills in the
// entries that are the same for all of ours: version, the CPU, operands of any
// type, lists of operands and results of any length from 1 on.
struct CustomOp : OrtCustomOp {
  CustomOp();
};

}  // namespace onnx_fp8
