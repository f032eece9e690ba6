// SPDX-License-Identifier: Apache-2.0
//
// Graphs of ONNX Runtime as ours.
#pragma once

#include <onnx/onnx_pb.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "providers/ort/ort_api.h"

namespace onnx_fp8 {

namespace onnx = ONNX_NAMESPACE;

// Null where the node omits an operand or a result.
std::vector<const OrtValueInfo*> InputsOf(const OrtNode* node);
std::vector<const OrtValueInfo*> OutputsOf(const OrtNode* node);
std::vector<const OrtNode*> NodesOf(const OrtGraph* graph);

std::string NameOf(const OrtValueInfo* value);  // "" for null
std::string OpOf(const OrtNode* node);
std::string DomainOf(const OrtNode* node);  // "" for ONNX's

// The element type of a tensor; kUndefined for anything else, and for types
// that we do not have.
DType DTypeOf(const OrtValueInfo* value);

// Whether it is a sequence of tensors of a type that we have.
bool IsSequence(const OrtValueInfo* value);

// Whether the session never changes the value.
bool IsConstant(const OrtValueInfo* value);

// The node without the bodies of control flow. Errors: an attribute of another
// kind, naming the node.
onnx::NodeProto ToNodeProto(const OrtNode* node);

// The opset of the ONNX domain. Errors: the graph imports none.
int OpsetOf(const OrtGraph* graph);

// The file that the model was read from; "" for a model from memory.
std::string PathOf(const OrtGraph* graph);

// A graph of the nodes, in the newest form, with these inputs and outputs.
// Constant inputs become initializers with bytes of their own, and so do
// constants that the nodes read and `inputs` lacks. Errors: as ReadModel's; a
// constant that can't be read; each names the node or the value.
std::unique_ptr<Graph> ToGraph(int opset, std::span<const OrtNode* const> nodes,
                               std::span<const OrtValueInfo* const> inputs,
                               std::span<const OrtValueInfo* const> outputs);

}  // namespace onnx_fp8
