// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "graph/onnx/evaluation_mode_internal.h"

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

}  // namespace

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

}  // namespace onnx_fp8
