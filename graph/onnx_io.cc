// SPDX-License-Identifier: Apache-2.0
#include "graph/onnx_io.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <onnx/defs/schema.h>
#include <onnx/inliner/inliner.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "graph/external_data.h"
#include "graph/onnx_convert.h"
#include "graph/schemas_internal.h"
#include "graph/upgrade.h"
#include "onnx_fp8/check.h"

namespace onnx_fp8 {
namespace {

// Protobuf prints its own complaints to stderr; ours say more.
struct QuietProtobuf {
  google::protobuf::LogSilencer silencer;
};

bool Parse(const void* data, size_t size, google::protobuf::Message* message) {
  QuietProtobuf quiet;
  if (size > static_cast<size_t>(INT32_MAX)) return false;
  return message->ParseFromArray(data, static_cast<int>(size));
}

int OnnxOpset(const onnx::ModelProto& model, const std::string& file) {
  for (const auto& import : model.opset_import()) {
    if (import.domain().empty() || import.domain() == "ai.onnx") {
      return static_cast<int>(import.version());
    }
  }
  Fail("[", file, "] expected an opset_import of the ONNX domain, got none");
}

std::unique_ptr<Graph> FromModel(std::shared_ptr<onnx::ModelProto> model,
                                 const std::string& file,
                                 const ReadOptions& options,
                                 const ExternalReader& external) {
  Check(model->ir_version() > 0 && model->has_graph(), "[", file,
        "] expected an ONNX model, got something else");
  auto graph = std::make_unique<Graph>();
  graph->file = file;
  graph->opset = OnnxOpset(*model, file);
  for (const auto& entry : model->metadata_props()) {
    graph->metadata[entry.key()] = entry.value();
  }
  if (!options.as_is && model->functions_size() > 0) {
    try {
      onnx::inliner::InlineLocalFunctions(*model, true);
    } catch (const std::exception& error) {
      Fail("[", file, "] local functions can't be inlined: ", error.what());
    }
  }
  AddGraphFromProto(*graph, model->graph(), external);
  for (Value* value : graph->Values()) {
    Check(value->producer || value->is_input || value->is_initializer(), "[",
          file, "] value \"", value->name, "\" is read but never computed");
  }
  graph->Sort();
  if (options.as_is) {
    graph->source = model;
  } else {
    Upgrade(*graph);
  }
  return graph;
}

// The lowest opset >= 19 at which every node means what it means here.
int LowestOpset(const Graph& graph) {
  int opset = kBodyOpset;
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

// The IR version that first allowed this opset; 10 is the first with
// metadata_props on nodes.
int IrVersionFor(int opset) { return opset <= 22 ? 10 : opset - 12; }

void AddFunctions(const Graph& graph, onnx::ModelProto* model) {
  std::set<std::string> used;
  for (const Node& node : graph.nodes()) {
    if (node.domain == kDomain) used.insert(node.op);
  }
  for (const std::string& name : used) {
    *model->add_functions() = BodyOf(*FindOp(name));
  }
  if (!used.empty()) {
    auto* import = model->add_opset_import();
    import->set_domain(kDomain);
    import->set_version(1);
  }
}

void AddInfo(const Value& value, onnx::ValueInfoProto* info) {
  info->set_name(value.name);
  ToProto(value.dtype, value.shape, info->mutable_type());
  if (value.axis_names.empty() || !value.shape) return;
  auto* shape = info->mutable_type()->mutable_tensor_type()->mutable_shape();
  for (int i = 0; i < shape->dim_size(); ++i) {
    const std::string& axis = value.axis_names[static_cast<size_t>(i)];
    if (!axis.empty() && !shape->dim(i).has_dim_value()) {
      shape->mutable_dim(i)->set_dim_param(axis);
    }
  }
}

onnx::ModelProto ToModel(const Graph& graph) {
  onnx::ModelProto model;
  int opset = LowestOpset(graph);
  model.set_ir_version(IrVersionFor(opset));
  model.set_producer_name(kDomain);
  model.set_producer_version(ONNX_FP8_VERSION);
  auto* import = model.add_opset_import();
  import->set_domain("");
  import->set_version(opset);
  AddFunctions(graph, &model);
  for (const auto& [key, value] : graph.metadata) {
    auto* entry = model.add_metadata_props();
    entry->set_key(key);
    entry->set_value(value);
  }
  auto* g = model.mutable_graph();
  g->set_name(graph.name);
  for (const Value* value : graph.inputs) AddInfo(*value, g->add_input());
  for (const StateBinding& binding : graph.state) {
    AddInfo(*binding.state, g->add_input());
  }
  for (const Value* value : graph.Initializers()) {
    ToProto(value->data, value->name, g->add_initializer());
  }
  for (const Node& node : graph.nodes()) *g->add_node() = ToProto(node);
  std::set<const Value*> listed;
  auto add_output = [&](const Value* value) {
    if (listed.insert(value).second) AddInfo(*value, g->add_output());
  };
  for (const Value* value : graph.outputs) add_output(value);
  if (!graph.state.empty()) {
    auto* info = model.add_training_info();
    for (const StateBinding& binding : graph.state) {
      add_output(binding.next);
      auto* entry = info->add_update_binding();
      entry->set_key(binding.state->name);
      entry->set_value(binding.next->name);
    }
  }
  return model;
}

}  // namespace

std::unique_ptr<Graph> ReadModel(const std::string& path,
                                 const ReadOptions& options) {
  MappedFile file = MapFile(path);
  Check(file.size > 0, "[", path, "] expected an ONNX model, got an empty file");
  Check(file.size <= static_cast<size_t>(INT32_MAX), "[", path,
        "] expected a model file below 2 GiB (with external data beyond), got ",
        file.size, " bytes");
  auto model = std::make_shared<onnx::ModelProto>();
  Check(Parse(file.data, file.size, model.get()), "[", path,
        "] expected an ONNX model, got a file that does not parse as one "
        "(truncated, or of another format)");
  ExternalData external(path);
  return FromModel(model, path, options, [&](const onnx::TensorProto& proto) {
    return external.Read(proto);
  });
}

std::unique_ptr<Graph> ReadModelFromBytes(const std::string& bytes,
                                          const ReadOptions& options) {
  auto model = std::make_shared<onnx::ModelProto>();
  Check(Parse(bytes.data(), bytes.size(), model.get()),
        "[bytes] expected an ONNX model, got bytes that do not parse as one");
  return FromModel(model, "bytes", options, {});
}

Tensor ReadTensorProto(const std::string& path) {
  MappedFile file = MapFile(path);
  onnx::TensorProto proto;
  Check(Parse(file.data, file.size, &proto), "[", path,
        "] expected a serialized TensorProto");
  return ToTensor(proto, path);
}

void WriteModel(const Graph& graph, const std::string& path) {
  onnx::ModelProto model = ToModel(graph);
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  bool ok = out && model.SerializeToOstream(&out) && out.flush();
  if (!ok) {
    std::error_code ignored;
    std::filesystem::remove(path, ignored);
    Fail("[", path, "] can't be written (no such folder, no permission or a "
         "full disk)");
  }
}

}  // namespace onnx_fp8
