// SPDX-License-Identifier: Apache-2.0
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "graph/model_file_internal.h"
#include "graph/onnx_convert_internal.h"
#include "graph/schemas_internal.h"
#include "onnx_fp8/check.h"

namespace onnx_fp8 {
namespace {

namespace fs = std::filesystem;

// Protobuf would print complaints of its own to stderr; ours say more.
bool Parse(const void* data, size_t size, google::protobuf::Message* message) {
  google::protobuf::LogSilencer quiet;
  return message->ParseFromArray(data, static_cast<int>(size));
}

void RequireModel(const ModelFile& file) {
  Check(file.model.ir_version() > 0 && file.model.has_graph(), "[", file.path,
        "] expected an ONNX model, got something else");
}

// Every file that an initializer or a tensor attribute refers to.
void CollectLocations(const onnx::GraphProto& graph,
                      std::set<std::string>* locations) {
  auto add = [&](const onnx::TensorProto& tensor) {
    for (const auto& entry : tensor.external_data()) {
      if (entry.key() == "location") locations->insert(entry.value());
    }
  };
  for (const auto& tensor : graph.initializer()) add(tensor);
  for (const auto& node : graph.node()) {
    for (const auto& attribute : node.attribute()) {
      if (attribute.has_t()) add(attribute.t());
      if (attribute.has_g()) CollectLocations(attribute.g(), locations);
    }
  }
}

}  // namespace

std::unique_ptr<Graph> ModelFile::ToGraph(
    const onnx::ModelProto& variant) const {
  auto graph = std::make_unique<Graph>();
  graph->file = path;
  graph->opset = OnnxOpset(variant, path);
  for (const auto& entry : variant.metadata_props()) {
    graph->metadata[entry.key()] = entry.value();
  }
  ExternalReader reader;
  if (external) {
    reader = [this](const onnx::TensorProto& proto) {
      return external->Read(proto);
    };
  }
  AddGraphFromProto(*graph, variant.graph(), reader);
  for (Value* value : graph->Values()) {
    Check(value->producer || value->is_input || value->is_initializer(), "[",
          path, "] value \"", value->name, "\" is read but never computed");
  }
  return graph;
}

ModelFile ReadModelFile(const std::string& path) {
  MappedFile bytes = MapFile(path);
  Check(bytes.size > 0, "[", path,
        "] expected an ONNX model, got an empty file");
  Check(bytes.size <= static_cast<size_t>(INT32_MAX), "[", path,
        "] expected a model file below 2 GiB (with external data beyond), got ",
        bytes.size, " bytes");
  ModelFile file;
  file.path = path;
  Check(Parse(bytes.data, bytes.size, &file.model), "[", path,
        "] expected an ONNX model, got a file that does not parse as one "
        "(truncated, or of another format)");
  file.external = std::make_shared<ExternalData>(path);
  RequireModel(file);
  return file;
}

ModelFile ReadModelBytes(const std::string& bytes) {
  ModelFile file;
  file.path = "bytes";
  Check(bytes.size() <= static_cast<size_t>(INT32_MAX) &&
            Parse(bytes.data(), bytes.size(), &file.model),
        "[bytes] expected an ONNX model, got bytes that do not parse as one");
  RequireModel(file);
  return file;
}

void WriteModelFile(const onnx::ModelProto& model, const std::string& path) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  bool ok = out && model.SerializeToOstream(&out) && out.flush();
  if (ok) return;
  std::error_code ignored;
  if (fs::is_regular_file(path, ignored)) fs::remove(path, ignored);
  Fail("[", path,
       "] can't be written (no such folder, no permission, a full disk, or a "
       "model of 2 GiB and more)");
}

void CopyExternalData(const ModelFile& file, const std::string& out) {
  fs::path from = fs::absolute(file.path).parent_path();
  fs::path to = fs::absolute(out).parent_path();
  std::error_code none;
  if (fs::equivalent(from, to, none)) return;
  std::set<std::string> locations;
  CollectLocations(file.model.graph(), &locations);
  for (const std::string& location : locations) {
    std::error_code error;
    fs::create_directories((to / location).parent_path(), error);
    fs::copy_file(from / location, to / location,
                  fs::copy_options::overwrite_existing, error);
    Check(!error, "[", (to / location).string(),
          "] can't be written: ", error.message());
  }
}

int OnnxOpset(const onnx::ModelProto& model, const std::string& path) {
  for (const auto& import : model.opset_import()) {
    if (import.domain().empty() || import.domain() == "ai.onnx") {
      return static_cast<int>(import.version());
    }
  }
  Fail("[", path, "] expected an opset_import of the ONNX domain, got none");
}

void SetOnnxOpset(onnx::ModelProto* model, int opset) {
  // The IR version that first allowed this opset; 10 is the first with
  // metadata_props on nodes.
  int ir_version = opset <= 22 ? 10 : opset - 12;
  if (model->ir_version() < ir_version) model->set_ir_version(ir_version);
  for (auto& import : *model->mutable_opset_import()) {
    if (import.domain().empty() || import.domain() == "ai.onnx") {
      import.set_version(opset);
      return;
    }
  }
  auto* import = model->add_opset_import();
  import->set_domain("");
  import->set_version(opset);
}

void SetProperty(onnx::ModelProto* model, const std::string& key,
                 const std::string& value) {
  for (auto& entry : *model->mutable_metadata_props()) {
    if (entry.key() == key) return entry.set_value(value);
  }
  auto* entry = model->add_metadata_props();
  entry->set_key(key);
  entry->set_value(value);
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

void AddFunctions(const Graph& graph, onnx::ModelProto* model) {
  std::set<std::string> used;
  for (const Node& node : graph.nodes()) {
    if (node.domain == kDomain) used.insert(node.op);
  }
  if (used.empty()) return;
  // A function must not import another opset than the model does: the checker
  // refuses ops that changed in between. Bodies mean the same since kBodyOpset.
  int opset = OnnxOpset(*model, graph.file);
  for (const std::string& name : used) {
    auto* function = model->add_functions();
    *function = BodyOf(*FindOp(name));
    for (auto& import : *function->mutable_opset_import()) {
      if (import.domain().empty()) import.set_version(opset);
    }
  }
  auto* import = model->add_opset_import();
  import->set_domain(kDomain);
  import->set_version(1);
}

void AddBindings(const Graph& graph, onnx::ModelProto* model) {
  if (graph.state.empty()) return;
  auto* info = model->add_training_info();
  for (const StateBinding& binding : graph.state) {
    auto* entry = info->add_update_binding();
    entry->set_key(binding.state->name);
    entry->set_value(binding.next->name);
  }
}

}  // namespace onnx_fp8
