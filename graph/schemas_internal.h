// SPDX-License-Identifier: Apache-2.0
//
// Bodies as ONNX functions; for .cc files of graph/ only.
#pragma once

#include <onnx/onnx_pb.h>

#include "graph/schemas.h"

namespace onnx_fp8 {

namespace onnx = ONNX_NAMESPACE;

// Opset of the ONNX domain that bodies are written in.
inline constexpr int kBodyOpset = 19;
// The first opset that has float8e8m0.
inline constexpr int kE8M0Opset = 24;

// The op's body. Errors: it does not parse, naming the op (a bug of ours).
onnx::FunctionProto BodyOf(const OpDefinition& op);

}  // namespace onnx_fp8
