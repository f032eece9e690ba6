// SPDX-License-Identifier: Apache-2.0
//
// Between ONNX's protobuf types and ours. Internal to graph/: only .cc files
// of this folder include it.
#pragma once

#include <onnx/onnx_pb.h>

#include <functional>
#include <string>
#include <unordered_map>

#include "graph/graph.h"
#include "onnx_fp8/tensor_source.h"

namespace onnx_fp8 {

namespace onnx = ONNX_NAMESPACE;

// Reads a TensorProto whose data lie in another file. Arguments: the tensor,
// and the beginning of error messages. Errors as ReadModel's.
using ExternalReader =
    std::function<Tensor(const onnx::TensorProto&, const std::string& who)>;

// Errors: strings and sparse data, sizes that do not match the shape, external
// data without a reader. `where` names the file or node.
Tensor ToTensor(const onnx::TensorProto& proto, const std::string& where,
                const ExternalReader& external = {});
void ToProto(const Tensor& tensor, const std::string& name,
             onnx::TensorProto* proto);
// The same without the bytes.
void DescribeTensor(const TensorSource& tensor, const std::string& name,
                    onnx::TensorProto* proto);

// Type and shape of a value; an unknown rank or axis stays open.
void ToProto(DType dtype, const std::optional<Shape>& shape,
             onnx::TypeProto* proto);
// Keeps a fact of `value` that the proto does not state; keeps known sizes.
void MergeType(const onnx::TypeProto& proto, Value* value);

// The metadata of a node that got another name in the file, because two nodes
// may not share one: its name before, on which its random numbers depend.
inline constexpr char kNameNote[] = "onnx_fp8.name";

// Values by name while nodes are added; the caller's map may cover a scope.
using ValueMap = std::unordered_map<std::string, Value*>;

// Adds the node with outputs of the same names (fresh names if these are taken)
// and enters them into `values`. Names that `values` lacks become captured
// values.
Node* AddNodeFromProto(Graph& graph, const onnx::NodeProto& proto,
                       ValueMap& values, Node* before = nullptr,
                       const ExternalReader& external = {});

onnx::NodeProto ToProto(const Node& node);

// Fills `graph` from a GraphProto: inputs, initializers, nodes, outputs.
void AddGraphFromProto(Graph& graph, const onnx::GraphProto& proto,
                       const ExternalReader& external = {});
// The same. An initializer or node of `proto` is empty as soon as the graph has
// it.
void MoveGraphFromProto(Graph& graph, onnx::GraphProto* proto,
                        const ExternalReader& external);

}  // namespace onnx_fp8
