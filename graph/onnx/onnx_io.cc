// SPDX-License-Identifier: Apache-2.0
#include "graph/onnx/onnx_io.h"

#include <onnx/defs/schema.h>

#include <map>
#include <set>

#include "base/check.h"
#include "graph/constants.h"
#include "graph/export_record.h"
#include "graph/onnx/body_names_internal.h"
#include "graph/onnx/import_ort.h"
#include "graph/onnx/inline_functions_internal.h"
#include "graph/onnx/model_file_internal.h"
#include "graph/onnx/onnx_convert_internal.h"
#include "graph/onnx/training_info_internal.h"
#include "graph/onnx/upgrade.h"
#include "graph/schemas_internal.h"

namespace onnx_fp8 {
namespace {

// Bodies of our own ops that a file brings along; we have the ops themselves.
void DropOwnBodies(onnx::ModelProto* model) {
  auto* functions = model->mutable_functions();
  for (int i = functions->size(); i-- > 0;) {
    if (functions->Get(i).domain() == kDomain) {
      functions->DeleteSubrange(i, 1);
    }
  }
}

// The lowest opset >= 19 at which every node keeps its meaning.
int LowestOpset(const Graph& graph) {
  int opset = kBodyOpset;
  for (const Value* value : graph.Values()) {
    if (value->dtype == DType::kE8M0) opset = kE8M0Opset;
  }
  for (const Node& node : graph.nodes()) {
    if (!node.domain.empty()) continue;
    if (node.op == "GroupNormalization") opset = std::max(opset, 21);
    auto fits = [&](int version) {
      auto* schema = onnx::OpSchemaRegistry::Schema(node.op, version, "");
      if (!schema || schema->deprecated()) return false;
      if (static_cast<int>(node.inputs().size()) > schema->max_input() ||
          static_cast<int>(node.outputs().size()) > schema->max_output()) {
        return false;
      }
      for (const auto& [name, value] : node.attributes) {
        if (!schema->attributes().contains(name)) return false;
      }
      return true;
    };
    while (opset < kNormalOpset && !fits(opset)) ++opset;
  }
  return opset;
}

// The initializers' bytes go to `contents`.
onnx::ModelProto ToModel(const Graph& graph, SourceMap* contents) {
  onnx::ModelProto model;
  model.set_producer_name(kDomain);
  model.set_producer_version(ONNX_FP8_VERSION);
  SetOnnxOpset(&model, LowestOpset(graph));
  AddFunctions(graph, &model);
  for (const auto& [key, value] : graph.metadata) {
    if (key == kGraphSignature) continue;  // a step has notes of its own
    SetProperty(&model, key, value);
  }
  auto* g = model.mutable_graph();
  g->set_name(graph.name);
  for (const Value* value : graph.inputs) AddInfo(*value, g->add_input());
  for (const StateBinding& binding : graph.state) {
    AddInfo(*binding.state, g->add_input());
  }
  for (const Value* value : graph.Initializers()) {
    DescribeTensor(value->data, value->name, g->add_initializer());
    contents->emplace(value->name, value->data);
  }
  // ONNX Runtime refuses two nodes of one name, so nodes that inlining or
  // unrolling duplicated get a number.
  std::map<std::string, int> names;
  for (const Node& node : graph.nodes()) names.try_emplace(node.name, 0);
  std::set<std::string> taken;
  for (const Node& node : graph.nodes()) {
    onnx::NodeProto* proto = g->add_node();
    *proto = ToProto(node);
    std::string name = node.name;
    while (!name.empty() && !taken.insert(name).second) {
      do {
        name = Concat(node.name, "_", ++names[node.name]);
      } while (names.contains(name));
    }
    proto->set_name(name);
    if (name == node.name) continue;
    auto* note = proto->add_metadata_props();
    note->set_key(kNameNote);
    note->set_value(node.name);
  }
  std::set<const Value*> listed;
  auto add_output = [&](const Value* value) {
    if (listed.insert(value).second) AddInfo(*value, g->add_output());
  };
  for (const Value* value : graph.outputs) add_output(value);
  for (const StateBinding& binding : graph.state) add_output(binding.next);
  AddBindings(graph, &model);
  return model;
}

}  // namespace

std::unique_ptr<Graph> ImportModelFile(ModelFile file) {
  DropOwnBodies(&file.model);
  InlineFunctions(&file.model, file.path);
  NameBodyTensors(file.model.mutable_graph());
  PlaceOrtOps(&file.model);
  auto graph = file.TakeGraph();
  graph->Sort();
  Upgrade(*graph);
  ImportOrtOps(*graph);
  LiftFromBodies(*graph);
  return graph;
}

std::unique_ptr<Graph> ReadModel(const std::string& path,
                                 const ReadOptions& options) {
  ModelFile file = ReadModelFile(path, options.budgets, options.algorithm);
  file.external->set_missing(options.missing);
  if (options.initializations) {
    *options.initializations = ReadInitializations(file, options.budgets);
  }
  if (options.as_is) {
    DropOwnBodies(&file.model);
    InlineFunctions(&file.model, file.path);
    return file.TakeGraph();
  }
  return ImportModelFile(std::move(file));
}

std::unique_ptr<Graph> ReadModelFromBytes(const std::string& bytes) {
  return ImportModelFile(ReadModelBytes(bytes));
}

Tensor ReadTensorProto(const std::string& path) {
  MappedFile file = MapFile(path);
  onnx::TensorProto proto;
  Check(proto.ParseFromArray(file.data, static_cast<int>(file.size)), "[", path,
        "] expected a serialized TensorProto");
  return ToTensor(proto, path);
}

void WriteModel(const Graph& graph, const std::string& path,
                const WriteOptions& options) {
  SourceMap contents;
  onnx::ModelProto model = ToModel(graph, &contents);
  WriteModelFile(&model, contents, path, graph.file, options);
}

}  // namespace onnx_fp8
