// SPDX-License-Identifier: Apache-2.0
#include "graph/onnx/export_weights.h"

#include <set>
#include <vector>

#include "base/check.h"
#include "graph/onnx/body_names_internal.h"
#include "graph/onnx/evaluation_mode_internal.h"
#include "graph/onnx/inline_functions_internal.h"
#include "graph/onnx/model_file_internal.h"
#include "graph/onnx/onnx_convert_internal.h"
#include "graph/onnx/upgrade.h"

namespace onnx_fp8 {
namespace {

// A list of floats in a Constant node becomes a tensor.
onnx::TensorProto* TensorIn(onnx::NodeProto* constant) {
  for (auto& attribute : *constant->mutable_attribute()) {
    if (attribute.name() == "value") return attribute.mutable_t();
    bool list = attribute.name() == "value_floats";
    if (!list && attribute.name() != "value_float") continue;
    Tensor data = Tensor::Scalar(attribute.f());
    if (list) {
      std::vector<float> values(attribute.floats().begin(),
                                attribute.floats().end());
      data = Tensor::From({static_cast<int64_t>(values.size())}, values);
    }
    attribute.Clear();
    attribute.set_name("value");
    attribute.set_type(onnx::AttributeProto::TENSOR);
    ToProto(data, "", attribute.mutable_t());
    return attribute.mutable_t();
  }
  return nullptr;
}

using Weights = SourceMap;
using Places = std::map<std::string, onnx::TensorProto*>;

// Adds the places where the graph holds the weights: an initializer or the
// tensor of a Constant node. The first place of a name counts. A second one is
// a constant of a later training algorithm (MergeAlgorithms).
void Find(const Weights& weights, onnx::GraphProto* graph, Places* held) {
  for (auto& proto : *graph->mutable_initializer()) {
    if (weights.contains(proto.name())) held->try_emplace(proto.name(), &proto);
  }
  for (auto& node : *graph->mutable_node()) {
    if (node.op_type() != "Constant" || node.output_size() == 0) continue;
    if (!weights.contains(node.output(0))) continue;
    if (auto* tensor = TensorIn(&node)) (*held)[node.output(0)] = tensor;
  }
}

// Tensors that are apart in training, and one in the file
// (graph/passes/separate_tensors.h), get initializers of their own: in place of
// the Identity that has the name, or as a statistic of BatchNormalization, with
// the name of the tensor that it shared.
void AddSeparated(const Weights& weights, onnx::GraphProto* graph,
                  Places* held) {
  auto add = [&](const std::string& name) {
    onnx::TensorProto* proto = graph->add_initializer();
    DescribeTensor(weights.at(name), name, proto);
    held->emplace(name, proto);
  };
  auto missing = [&](const std::string& name) {
    return weights.contains(name) && !held->contains(name);
  };
  auto* nodes = graph->mutable_node();
  for (int i = nodes->size(); i-- > 0;) {
    const auto& node = nodes->Get(i);
    if (node.op_type() != "Identity" || !missing(node.output(0))) continue;
    add(node.output(0));
    nodes->DeleteSubrange(i, 1);
  }
  for (auto& node : *nodes) {
    if (node.op_type() != "BatchNormalization" || node.input_size() < 5) {
      continue;
    }
    for (int slot : {3, 4}) {
      std::string own = node.input(slot) + (slot == 3 ? ".mean" : ".variance");
      if (missing(own)) add(own);
      if (weights.contains(own)) node.set_input(slot, own);
    }
  }
}

// As Find, and in the bodies of its nodes, whose tensors have unique names.
void FindAll(const Weights& weights, onnx::GraphProto* graph, Places* held) {
  Find(weights, graph, held);
  for (auto& node : *graph->mutable_node()) {
    for (auto& attribute : *node.mutable_attribute()) {
      if (attribute.has_g()) FindAll(weights, attribute.mutable_g(), held);
    }
  }
}

}  // namespace

void ExportWithWeights(const std::string& in, const std::string& out,
                       const SourceMap& weights, const WriteOptions& options,
                       ExportMode mode) {
  ModelFile file = ReadModelFile(in);
  Places held;
  Find(weights, file.model.mutable_graph(), &held);
  if (held.size() < weights.size()) {
    AddSeparated(weights, file.model.mutable_graph(), &held);
  }
  for (auto& info : *file.model.mutable_training_info()) {
    if (info.has_algorithm()) Find(weights, info.mutable_algorithm(), &held);
    info.clear_initialization();
    info.clear_initialization_binding();
  }
  if (held.size() < weights.size()) {
    // Constants of functions are in the graph after inlining.
    InlineFunctions(&file.model, file.path);
    for (const auto& node : file.model.graph().node()) {
      for (const auto& entry : node.metadata_props()) {
        Check(entry.key() != kOpsetNote, "[", in, "] holds trained weights in ",
              "functions and has functions of another opset than its own; "
              "inline them first (onnx.inliner)");
      }
    }
    NameBodyTensors(file.model.mutable_graph());
    held.clear();
    FindAll(weights, file.model.mutable_graph(), &held);
  }
  std::set<std::string> initializers;
  for (const auto& proto : file.model.graph().initializer()) {
    initializers.insert(proto.name());
  }
  SourceMap contents;
  for (const auto& [name, tensor] : weights) {
    Check(held.contains(name), "[", in, "] holds no initializer \"", name,
          "\"");
    onnx::TensorProto& proto = *held.at(name);
    Shape shape(proto.dims().begin(), proto.dims().end());
    Check(tensor.shape() == shape, "[", in, "] expected ", name, " of shape ",
          ToString(shape), ", got ", ToString(tensor.shape()));
    DType dtype = static_cast<DType>(proto.data_type());
    std::string own = proto.name();  // empty for some Constants
    proto.Clear();
    TensorSource data(dtype, shape, [tensor, dtype] {
      Tensor pulled = tensor.Pull();
      return pulled.dtype() == dtype ? pulled : ConvertTo(pulled, dtype);
    });
    if (initializers.contains(name)) {
      DescribeTensor(data, name, &proto);
      contents.emplace(name, std::move(data));
    } else {
      ToProto(data.Pull(), own, &proto);
    }
  }
  if (mode == ExportMode::kEvaluation) SetEvaluationMode(&file.model);
  CopyExternalData(file, out);
  WriteModelFile(&file.model, contents, out, in, options);
}

}  // namespace onnx_fp8
