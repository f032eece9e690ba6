// SPDX-License-Identifier: Apache-2.0
#include "graph/onnx/export_weights.h"

#include <onnx/onnx_pb.h>

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "graph/onnx/body_names_internal.h"
#include "graph/onnx/inline_functions_internal.h"
#include "graph/onnx/model_file_internal.h"
#include "graph/onnx/onnx_convert_internal.h"
#include "graph/onnx/upgrade.h"

namespace onnx_fp8 {
namespace {

namespace onnx = ONNX_NAMESPACE;
using ReadCounts = std::map<std::string, int>;  // of values, by name

template <typename Nodes>
void CountReads(const Nodes& nodes, ReadCounts* read) {
  for (const auto& node : nodes) {
    for (const std::string& name : node.input()) ++(*read)[name];
    for (const auto& attribute : node.attribute()) {
      if (!attribute.has_g()) continue;
      CountReads(attribute.g().node(), read);
      for (const auto& y : attribute.g().output()) ++(*read)[y.name()];
    }
  }
}

void EraseAttribute(onnx::NodeProto* node, const std::string& name) {
  auto* attributes = node->mutable_attribute();
  for (int i = attributes->size(); i-- > 0;) {
    if (attributes->Get(i).name() == name) attributes->DeleteSubrange(i, 1);
  }
}

// Opset 6 and older have the mode in an attribute.
void SetTest(onnx::NodeProto* node) {
  EraseAttribute(node, "is_test");
  auto* attribute = node->add_attribute();
  attribute->set_name("is_test");
  attribute->set_type(onnx::AttributeProto::INT);
  attribute->set_i(1);
}

// The nodes of one graph or function.
class Nodes {
 public:
  Nodes(int opset, ReadCounts& read) : opset_(opset), read_(read) {}

  void Change(google::protobuf::RepeatedPtrField<onnx::NodeProto>* nodes) {
    google::protobuf::RepeatedPtrField<onnx::NodeProto> all;
    for (auto& node : *nodes) {
      for (auto& attribute : *node.mutable_attribute()) {
        if (attribute.has_g()) ChangeBody(attribute.mutable_g());
      }
      std::vector<onnx::NodeProto> behind;
      bool onnx = node.domain().empty() || node.domain() == "ai.onnx";
      if (onnx && node.op_type() == "BatchNormalization") {
        behind = BatchNorm(&node);
      }
      if (onnx && node.op_type() == "Dropout") Dropout(&node);
      all.Add()->Swap(&node);
      for (const auto& same : behind) *all.Add() = same;
    }
    nodes->Swap(&all);
    DropConstants(nodes);
  }

  // Removes the types of values that no longer exist.
  void Forget(google::protobuf::RepeatedPtrField<onnx::ValueInfoProto>* infos) {
    for (int i = infos->size(); i-- > 0;) {
      if (gone_.contains(infos->Get(i).name())) infos->DeleteSubrange(i, 1);
    }
  }

 private:
  void ChangeBody(onnx::GraphProto* graph) {
    Nodes body(opset_, read_);
    body.Change(graph->mutable_node());
    body.Forget(graph->mutable_value_info());
  }

  // Returns nodes that give the present statistics the names of the next ones,
  // if a node reads these.
  std::vector<onnx::NodeProto> BatchNorm(onnx::NodeProto* node) {
    if (opset_ < 7) SetTest(node);
    EraseAttribute(node, "training_mode");
    std::vector<onnx::NodeProto> behind;
    auto* outputs = node->mutable_output();
    for (int i = 1; i < outputs->size(); ++i) {
      const std::string& name = outputs->Get(i);
      if (!read_.contains(name)) {
        gone_.insert(name);
        continue;
      }
      onnx::NodeProto same;
      same.set_op_type("Identity");
      same.set_domain(node->domain());
      same.add_input(node->input(i % 2 == 1 ? 3 : 4));  // means, variances
      same.add_output(name);
      behind.push_back(std::move(same));
    }
    if (outputs->size() > 1) outputs->DeleteSubrange(1, outputs->size() - 1);
    return behind;
  }

  void Dropout(onnx::NodeProto* node) {
    if (opset_ < 7) SetTest(node);
    auto* inputs = node->mutable_input();
    if (opset_ < 12 || inputs->size() < 3) return;
    --read_[inputs->Get(2)];
    inputs->RemoveLast();
  }

  // Removes constants that only a Dropout read.
  void DropConstants(
      google::protobuf::RepeatedPtrField<onnx::NodeProto>* nodes) {
    for (int i = nodes->size(); i-- > 0;) {
      const auto& node = nodes->Get(i);
      if (node.op_type() != "Constant" || node.output_size() != 1) continue;
      auto reads = read_.find(node.output(0));
      if (reads == read_.end() || reads->second > 0) continue;
      gone_.insert(node.output(0));
      nodes->DeleteSubrange(i, 1);
    }
  }

  int opset_;
  ReadCounts& read_;
  std::set<std::string> gone_;
};

template <typename Imports>
int OpsetIn(const Imports& imports, int otherwise) {
  for (const auto& entry : imports) {
    bool onnx = entry.domain().empty() || entry.domain() == "ai.onnx";
    if (onnx) return static_cast<int>(entry.version());
  }
  return otherwise;
}

// Puts a file into evaluation mode, functions and bodies included:
// BatchNormalization normalizes by its running statistics, Dropout drops
// nothing. Nodes that read the next statistics read the present ones.
void SetEvaluationMode(onnx::ModelProto* model) {
  const int opset = OpsetIn(model->opset_import(), 1);
  onnx::GraphProto* graph = model->mutable_graph();
  ReadCounts read;
  CountReads(graph->node(), &read);
  for (const auto& output : graph->output()) ++read[output.name()];
  Nodes main(opset, read);
  main.Change(graph->mutable_node());
  main.Forget(graph->mutable_value_info());
  for (auto& function : *model->mutable_functions()) {
    ReadCounts own;
    CountReads(function.node(), &own);
    for (const std::string& output : function.output()) ++own[output];
    Nodes nodes(OpsetIn(function.opset_import(), opset), own);
    nodes.Change(function.mutable_node());
    nodes.Forget(function.mutable_value_info());
  }
}

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
  CopyExternalData(file, DataLocations(file.model), out);
  WriteModelFile(&file.model, contents, out, in, options);
}

}  // namespace onnx_fp8
