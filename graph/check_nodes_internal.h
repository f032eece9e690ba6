// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <onnx/onnx_pb.h>

#include <string>

namespace onnx_fp8 {

namespace onnx = ONNX_NAMESPACE;

using NodeList = google::protobuf::RepeatedPtrField<onnx::NodeProto>;

// Every node of the list and of its subgraphs against its operator's schema:
// numbers of inputs and outputs, kinds and bounds of attributes. What follows,
// ONNX's library first, may rely on it. `opset` is the nodes' own but where a
// note says another (upgrade.h). Operators of unknown domains pass here and are
// refused where they are met.
void CheckNodes(const NodeList& nodes, int opset, const std::string& path);

}  // namespace onnx_fp8
