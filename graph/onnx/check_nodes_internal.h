// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <onnx/onnx_pb.h>

#include <string>

namespace onnx_fp8 {

namespace onnx = ONNX_NAMESPACE;

using NodeList = google::protobuf::RepeatedPtrField<onnx::NodeProto>;

// Checks every node of the list and of its subgraphs against its operator's
// schema: numbers of inputs and outputs, kinds and bounds of attributes. All
// later code, ONNX's library first, may rely on this. `opset` is the opset of
// the nodes, unless a note on a node names another one (upgrade.h). Operators
// of unknown domains pass here; the code that meets them refuses them.
void CheckNodes(const NodeList& nodes, int opset, const std::string& path);

}  // namespace onnx_fp8
