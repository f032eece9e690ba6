// SPDX-License-Identifier: Apache-2.0
#include <set>
#include <string>
#include <unordered_map>

#include "base/check.h"
#include "graph/onnx/body_names_internal.h"

namespace onnx_fp8 {
namespace {

template <typename F>
void ForEachBody(onnx::GraphProto* graph, F visit) {
  for (auto& node : *graph->mutable_node()) {
    for (auto& attribute : *node.mutable_attribute()) {
      if (attribute.has_g()) visit(attribute.mutable_g());
    }
  }
}

class Namer {
 public:
  explicit Namer(onnx::GraphProto* graph) {
    Count(graph);
    VisitBodies(graph);
  }

 private:
  void Count(onnx::GraphProto* graph) {
    for (const std::string& name : NamesIn(*graph)) ++count_[name];
    ForEachBody(graph, [&](onnx::GraphProto* body) { Count(body); });
  }

  void VisitBodies(onnx::GraphProto* graph) {
    ForEachBody(graph, [&](onnx::GraphProto* body) {
      NameTensors(body);
      VisitBodies(body);
    });
  }

  void NameTensors(onnx::GraphProto* body) {
    Renames renames;
    // Old files list initializers as inputs too.
    std::set<std::string> inputs;
    for (const auto& input : body->input()) inputs.insert(input.name());
    for (auto& tensor : *body->mutable_initializer()) {
      if (!inputs.contains(tensor.name())) {
        Name(tensor.mutable_name(), &renames);
      }
    }
    for (auto& node : *body->mutable_node()) {
      bool constant = node.op_type() == "Constant" && node.output_size() == 1;
      if (constant) Name(node.mutable_output(0), &renames);
    }
    if (!renames.empty()) RenameReaders(body, renames);
  }

  void Name(std::string* name, Renames* renames) {
    if (name->empty() || count_[*name] == 1) return;
    std::string own;
    do {
      own = Concat(*name, "_", ++suffix_[*name]);
    } while (count_.contains(own));
    count_[own] = 1;
    renames->emplace(*name, own);
    *name = own;
  }

  std::unordered_map<std::string, int> count_, suffix_;
};

}  // namespace

std::set<std::string> NamesIn(const onnx::GraphProto& graph) {
  std::set<std::string> names;
  for (const auto& tensor : graph.initializer()) names.insert(tensor.name());
  for (const auto& input : graph.input()) names.insert(input.name());
  for (const auto& node : graph.node()) {
    names.insert(node.output().begin(), node.output().end());
  }
  return names;
}

void Rename(const Renames& renames, std::string* name) {
  auto it = renames.find(*name);
  if (it != renames.end()) *name = it->second;
}

void RenameReaders(onnx::GraphProto* graph, const Renames& renames) {
  for (auto& node : *graph->mutable_node()) {
    for (std::string& input : *node.mutable_input()) Rename(renames, &input);
  }
  for (auto* infos : {graph->mutable_output(), graph->mutable_value_info()}) {
    for (auto& info : *infos) Rename(renames, info.mutable_name());
  }
  ForEachBody(graph, [&](onnx::GraphProto* body) {
    Renames seen = renames;
    for (const std::string& own : NamesIn(*body)) seen.erase(own);
    if (!seen.empty()) RenameReaders(body, seen);
  });
}

void NameBodyTensors(onnx::GraphProto* graph) { Namer namer(graph); }

}  // namespace onnx_fp8
