// SPDX-License-Identifier: Apache-2.0
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>

#include "base/check.h"
#include "base/file.h"
#include "graph/export_record.h"
#include "graph/onnx/check_functions_internal.h"
#include "graph/onnx/check_nodes_internal.h"
#include "graph/onnx/import_ort.h"
#include "graph/onnx/model_file_internal.h"
#include "graph/onnx/onnx_convert_internal.h"
#include "graph/onnx/training_info_internal.h"
#include "graph/onnx/upgrade.h"
#include "graph/schemas_internal.h"

namespace onnx_fp8 {
namespace {

// Stops Protobuf from printing messages to stderr; ours say more.
bool Parse(const std::string& bytes, google::protobuf::Message* message) {
  google::protobuf::LogSilencer quiet;
  return message->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
}

// The same from a file, piece by piece: its bytes are in memory once, in the
// message.
bool Parse(const InputFile& file, google::protobuf::Message* message) {
  constexpr int kPiece = 1 << 20;
  google::protobuf::LogSilencer quiet;
  google::protobuf::io::FileInputStream pieces(file.fd(), kPiece);
  return message->ParseFromZeroCopyStream(&pieces);
}

void RequireModel(const ModelFile& file, const Budgets& budgets) {
  const int64_t ir = file.model.ir_version();
  Check(ir > 0 && file.model.has_graph(), "[", file.path,
        "] expected an ONNX model with a graph, got something else");
  Check(ir <= onnx::IR_VERSION, "[", file.path,
        "] expected ONNX's IR version 1 to ", int{onnx::IR_VERSION}, ", got ",
        ir, "; export the model with one of these");
  CheckFunctions(file.model, file.path, budgets);
}

// The ONNX domain has two names.
bool IsOnnx(const onnx::OperatorSetIdProto& import) {
  return import.domain().empty() || import.domain() == "ai.onnx";
}

// 0 if the list has no ONNX domain.
int OnnxVersion(
    const google::protobuf::RepeatedPtrField<onnx::OperatorSetIdProto>& imports,
    const std::string& path) {
  int64_t version = 0;
  for (const auto& import : imports) {
    if (!IsOnnx(import)) continue;
    Check(import.version() >= 1 && import.version() <= kNormalOpset, "[", path,
          "] expected ONNX opset ", kOldestOpset, " to ", kNormalOpset,
          ", got ", import.version(), "; export the model with one of these");
    Check(version == 0 || version == import.version(), "[", path,
          "] expected one opset of the ONNX domain (\"\" or \"ai.onnx\"), "
          "got ",
          version, " and ", import.version(),
          "; remove the opset_import that does not belong to the nodes");
    version = import.version();
  }
  return static_cast<int>(version);
}

// Operators that ONNX lacks, but ONNX Runtime has in the ONNX domain.
bool IsInOnnxDomain(const onnx::NodeProto& node) {
  return node.op_type() == "SimplifiedLayerNormalization" ||
         node.op_type() == "MaxPoolGrad";
}

// PyTorch's exporter writes on the value_info of each tensor whether it was a
// parameter, a buffer or a constant of the module.
void NoteSignature(const onnx::ModelProto& model, Graph* graph) {
  static const std::map<std::string, TensorKind, std::less<>> kKinds = {
      {"PARAMETER", TensorKind::kParameter},
      {"BUFFER", TensorKind::kBuffer},
      {"CONSTANT_TENSOR", TensorKind::kConstant}};
  std::map<std::string, TensorKind> kinds;
  auto read = [&](const std::string& name, const auto& properties) {
    for (const auto& entry : properties) {
      auto kind = kKinds.find(entry.value());
      bool says = entry.key() == Concat(kGraphSignature, ".InputSpec.kind");
      if (says && kind != kKinds.end()) kinds[name] = kind->second;
    }
  };
  for (const auto& info : model.graph().value_info()) {
    read(info.name(), info.metadata_props());
  }
  for (const auto& tensor : model.graph().initializer()) {
    read(tensor.name(), tensor.metadata_props());
  }
  graph->metadata[kGraphSignature] =
      SignatureText(model.producer_name(), kinds);
}

namespace fs = std::filesystem;

size_t ParseSize(const std::string& text, const std::string& key,
                 const std::string& who) {
  size_t value = 0;
  auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value);
  Check(error == std::errc() && end == text.data() + text.size(), "[", who,
        "] expected external_data ", key, " to be a number of bytes, got \"",
        text, "\"");
  return value;
}

// State, when the graph has its nodes. Errors: ReadState's; a value that
// nothing computes.
void Complete(const onnx::ModelProto& model, Graph* graph) {
  ReadState(model, graph);
  for (Value* value : graph->Values()) {
    if (value->producer || value->is_input || value->is_initializer()) continue;
    bool output = std::ranges::count(graph->outputs, value) > 0;
    Fail("[", graph->file, "] value \"", value->name, "\" is ",
         output                ? "an output of the graph"
         : value->uses.empty() ? "read by a subgraph"
                               : Concat("read by ", value->uses[0]->Where()),
         " but never computed");
  }
}

// Errors: the location is no name of a file in the model's folder.
void CheckLocation(const std::string& location, const std::string& who) {
  const fs::path relative(location);
  Check(location.find('\0') == std::string::npos, "[", who,
        "] expected external data with a file name, got a zero byte in it");
  bool inside = !location.empty() && relative.is_relative();
  for (const fs::path& part : relative) inside = inside && part != "..";
  Check(inside, "[", who,
        "] expected external data inside the model's folder, "
        "got location \"",
        location, "\"");
}

}  // namespace

std::unique_ptr<Graph> ModelFile::NewGraph(
    const onnx::ModelProto& variant) const {
  auto graph = std::make_unique<Graph>();
  graph->file = path;
  graph->opset = OnnxOpset(variant, path);
  for (const auto& entry : variant.metadata_props()) {
    graph->metadata[entry.key()] = entry.value();
  }
  NoteSignature(variant, graph.get());
  CheckNodes(variant.graph().node(), graph->opset, path);
  return graph;
}

ExternalReader ModelFile::Reader() const {
  if (!external) return {};
  return [this](const onnx::TensorProto& proto, const std::string& who) {
    return external->Read(proto, who);
  };
}

std::unique_ptr<Graph> ModelFile::ToGraph(
    const onnx::ModelProto& variant) const {
  auto graph = NewGraph(variant);
  AddGraphFromProto(*graph, variant.graph(), Reader());
  Complete(variant, graph.get());
  return graph;
}

std::unique_ptr<Graph> ModelFile::TakeGraph() {
  auto graph = NewGraph(model);
  MoveGraphFromProto(*graph, model.mutable_graph(), Reader());
  Complete(model, graph.get());
  return graph;
}

ModelFile ReadModelFile(const std::string& path, const Budgets& budgets,
                        bool algorithm) {
  const InputFile bytes(path);
  Check(bytes.size() > 0, "[", path,
        "] expected an ONNX model, got an empty file");
  Check(bytes.size() <= static_cast<uint64_t>(INT32_MAX), "[", path,
        "] expected a model file below 2 GiB (with external data beyond), got ",
        bytes.size(), " bytes");
  ModelFile file;
  file.path = path;
  const bool parsed = Parse(bytes, &file.model);
  bytes.CheckWhole();
  Check(parsed, "[", path,
        "] expected an ONNX model, got a file that does not parse as one "
        "(truncated, or of another format)");
  if (algorithm) MergeAlgorithms(path, budgets, &file.model);
  file.external = std::make_shared<ExternalData>(path);
  RequireModel(file, budgets);
  return file;
}

ModelFile ReadModelBytes(const std::string& bytes) {
  ModelFile file;
  file.path = "bytes";
  Check(bytes.size() <= static_cast<size_t>(INT32_MAX) &&
            Parse(bytes, &file.model),
        "[bytes] expected an ONNX model, got bytes that do not parse as one");
  RequireModel(file, {});
  return file;
}

void PlaceOrtOps(onnx::ModelProto* model) {
  constexpr int kLayerNormOpset = 17;
  for (auto& node : *model->mutable_graph()->mutable_node()) {
    if (!node.domain().empty()) continue;
    if (IsInOnnxDomain(node)) node.set_domain(kOrtDomain);
    if (node.op_type() != "LayerNormalization") continue;
    for (const auto& import : model->opset_import()) {
      if (!IsOnnx(import) || import.version() >= kLayerNormOpset) continue;
      auto* note = node.add_metadata_props();
      note->set_key(kOpsetNote);
      note->set_value(std::to_string(kLayerNormOpset));
    }
  }
}

void RestoreOrtOps(onnx::ModelProto* model) {
  for (auto& node : *model->mutable_graph()->mutable_node()) {
    if (IsInOnnxDomain(node)) node.clear_domain();
  }
}

int OnnxOpset(const onnx::ModelProto& model, const std::string& path) {
  int version = OnnxVersion(model.opset_import(), path);
  Check(version > 0, "[", path,
        "] expected an opset_import of the ONNX domain, got none");
  return version;
}

int OnnxOpset(const onnx::FunctionProto& function, const std::string& path,
              int of_model) {
  int version = OnnxVersion(function.opset_import(), path);
  return version > 0 ? version : of_model;
}

void SetOnnxOpset(onnx::ModelProto* model, int opset) {
  // The IR version that first allowed this opset; 10 is the first with
  // metadata_props on nodes.
  int ir_version = opset <= 22   ? 10
                   : opset <= 25 ? opset - 12
                   : opset <= 27 ? 13
                                 : 14;
  if (model->ir_version() < ir_version) model->set_ir_version(ir_version);
  bool found = false;
  for (auto& import : *model->mutable_opset_import()) {
    if (!IsOnnx(import)) continue;
    import.set_version(opset);
    found = true;
  }
  if (found) return;
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
  // A function must not import another opset than the model: the checker
  // refuses ops that changed in between. Bodies have had the same meaning since
  // kBodyOpset.
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

std::string ExternalData::Hint(const fs::path& missing) const {
  std::error_code none;
  fs::path real = fs::read_symlink(model_, none);
  if (none || fs::exists(fs::symlink_status(missing, none))) return "";
  return Concat("; the model is a link, and its data are expected beside the ",
                "link: give ", (fs::path(model_).parent_path() / real).string(),
                " instead if they lie there");
}

std::unique_ptr<InputFile> ExternalData::Open(const std::string& location,
                                              const std::string& who) const {
  CheckLocation(location, who);
  fs::path folder = fs::path(model_).parent_path();
  try {
    return std::make_unique<InputFile>(folder.string(), location);
  } catch (const Error& error) {
    Fail("[", who, "] expected external data in ", location, ": ", error.what(),
         Hint(folder / location));
  }
}

bool ExternalData::IsMissing(const std::string& location,
                             const std::string& tensor) {
  if (!missing_) return false;
  std::error_code none;
  const fs::path file = fs::path(model_).parent_path() / location;
  if (fs::exists(fs::symlink_status(file, none))) return false;
  // The data may lie beside the target of the link: opening it says so.
  if (!Hint(file).empty()) return false;
  missing_->files.insert(location);
  missing_->tensors.insert(tensor);
  return true;
}

Tensor ExternalData::Read(const onnx::TensorProto& proto,
                          const std::string& who) {
  DType dtype = static_cast<DType>(proto.data_type());
  Shape shape(proto.dims().begin(), proto.dims().end());
  size_t want = static_cast<size_t>(NumElements(shape));
  Check(!__builtin_mul_overflow(want, ByteSize(dtype), &want), "[", who,
        "] expected a tensor that fits into memory, got shape ",
        ToString(shape));
  std::string location;
  size_t offset = 0;
  size_t length = want;
  for (const auto& entry : proto.external_data()) {
    if (entry.key() == "location") location = entry.value();
    if (entry.key() == "offset") {
      offset = ParseSize(entry.value(), "offset", who);
    }
    if (entry.key() == "length") {
      length = ParseSize(entry.value(), "length", who);
    }
  }
  CheckLocation(location, who);
  Check(length == want, "[", who, "] expected ", want, " bytes for shape ",
        ToString(shape), ", got length ", length);
  if (IsMissing(location, proto.name())) {
    return Tensor::Zeros(dtype, std::move(shape));
  }
  std::shared_ptr<const InputFile>& file = files_[location];
  if (!file) file = Open(location, who);
  Check(offset <= file->size() && length <= file->size() - offset, "[", who,
        "] expected ", length, " bytes from ", offset, " on in ", location,
        ", which holds ", file->size());
  if (length == 0 || offset % ByteSize(dtype) != 0) {
    Tensor copy = Tensor::Allocate(dtype, std::move(shape));
    file->Read(static_cast<char*>(copy.raw()), length, offset);
    return copy;
  }
  const MappedFile part = MapPart(file, offset, length);
  return Tensor::View(dtype, std::move(shape), part.owner, part.data);
}

}  // namespace onnx_fp8
