// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <onnx/onnx_pb.h>

namespace onnx_fp8 {

namespace onnx = ONNX_NAMESPACE;

// Gives each tensor that a body of If, Loop or Scan holds, an initializer or
// a Constant node, a name that nothing else in the model has: two branches may
// use one name for two weights. Names that are their own already stay. The
// names depend on the model alone.
void NameBodyTensors(onnx::GraphProto* graph);

}  // namespace onnx_fp8
