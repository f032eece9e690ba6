// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <onnx/onnx_pb.h>

namespace onnx_fp8 {

namespace onnx = ONNX_NAMESPACE;

// Renames each tensor (an initializer or a Constant node) in a body of If, Loop
// or Scan so that nothing else in the model has its name: two branches may use
// one name for two weights. A name that is already unique stays. The new names
// depend on the model alone.
void NameBodyTensors(onnx::GraphProto* graph);

}  // namespace onnx_fp8
