// SPDX-License-Identifier: Apache-2.0
//
// A model file as protobuf; for .cc files of graph/ only.
#pragma once

#include <onnx/onnx_pb.h>

#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "base/mapped_file.h"
#include "graph/graph.h"
#include "graph/onnx/onnx_convert_internal.h"
#include "graph/onnx/onnx_io.h"
#include "onnx_fp8/external_copy.h"
#include "onnx_fp8/tensor_source.h"

namespace onnx_fp8 {

namespace onnx = ONNX_NAMESPACE;

// The data files of one model, where it keeps tensors in other files. Each is
// opened once.
class ExternalData {
 public:
  // `model` is the model file's path; data must lie in its folder or below. If
  // the path is a link, this is the link's folder, as with other loaders, not
  // its target's.
  explicit ExternalData(std::string model) : model_(std::move(model)) {}

  // As ReadOptions::missing.
  void set_missing(MissingData* names) { missing_ = names; }

  // Each tensor is a part of its own (MapPart): its bytes are in memory while
  // somebody looks at them, and no longer than the tensor. A large tensor is
  // read here only if its offset is no multiple of the element size. Errors: a
  // location that is absolute, leaves the folder or passes a link; a file that
  // is missing or too short; `who` begins the message.
  Tensor Read(const onnx::TensorProto& proto, const std::string& who);

  // A whole file, with Read's errors.
  std::unique_ptr<InputFile> Open(const std::string& location,
                                  const std::string& who) const;

 private:
  // Advice if a file is missing because the model's path is a link.
  std::string Hint(const std::filesystem::path& file) const;

  // Whether the file is missing and Read may return zeros. If so, the names of
  // file and tensor go into missing_.
  bool IsMissing(const std::string& location, const std::string& tensor);

  std::string model_;
  MissingData* missing_ = nullptr;
  std::map<std::string, std::shared_ptr<const InputFile>> files_;
};

struct ModelFile {
  std::string path;  // "bytes" for a model that came from memory
  onnx::ModelProto model;
  std::shared_ptr<ExternalData> external;  // null: external data is refused

  // Makes a graph of `model` (this file's, or a variant of it), nodes as they
  // are. Errors as ReadModel's.
  std::unique_ptr<Graph> ToGraph(const onnx::ModelProto& model) const;
  // The same of this file's model. Each initializer moves from `model` to the
  // graph and gives its memory back.
  std::unique_ptr<Graph> TakeGraph();

 private:
  std::unique_ptr<Graph> NewGraph(const onnx::ModelProto& model) const;
  ExternalReader Reader() const;
};

// Errors as ReadModel's. `budgets` may be null if nothing is planned for the
// file: functions may then have any number of nodes. `algorithm`: as
// ReadOptions'.
ModelFile ReadModelFile(const std::string& path,
                        const Budgets& budgets = {.nodes = INT64_MAX},
                        bool algorithm = false);
ModelFile ReadModelBytes(const std::string& bytes);

// The graph in its normal form, as ReadModel returns it.
std::unique_ptr<Graph> ImportModelFile(ModelFile file);

// ONNX Runtime writes some of its operators into the ONNX domain. Notes the
// opset that has LayerNormalization on nodes of an older one, and moves the
// operators that ONNX lacks to ONNX Runtime's domain.
void PlaceOrtOps(onnx::ModelProto* model);
// Moves these operators back.
void RestoreOrtOps(onnx::ModelProto* model);

// Writes `model`, which it uses up. `contents` has the bytes of initializers
// that have none in `model`, by name. With external data both files are
// complete before either has its name. `source` is the model that this one is
// made from; its data are not replaced. Errors: as WriteModel's; nothing is
// left of the new files.
void WriteModelFile(onnx::ModelProto* model, const SourceMap& contents,
                    const std::string& path, const std::string& source,
                    const WriteOptions& options);

// The data files that initializers and tensor attributes refer to.
std::set<std::string> DataLocations(const onnx::ModelProto& model);

// Call this before external data are written to `path`, which is `name` below
// the model's folder. Errors: a part of `name` begins with a dot: a model must
// not write where programs look for their settings.
void CheckDataName(const std::string& path, const std::string& name);

// Copies data files of the model, those at `locations`, into the folder of
// `out`. The copies keep their names. Nothing is copied if `out` lies in the
// model's own folder. A file that is there already stays if it holds the same
// bytes. Errors: it holds other bytes; it is a link; CheckDataName's; a file
// that can't be written.
void CopyExternalData(const ModelFile& file,
                      const std::set<std::string>& locations,
                      const std::string& out,
                      const ExternalCopyObserver& observer = {});

// Opset of the ONNX domain. Errors: none given.
int OnnxOpset(const onnx::ModelProto& model, const std::string& path);
// A function that imports no opset has the model's.
int OnnxOpset(const onnx::FunctionProto& function, const std::string& path,
              int of_model);
// Sets the opset, and an IR version that is high enough for it.
void SetOnnxOpset(onnx::ModelProto* model, int opset);

// metadata_props of the model.
void SetProperty(onnx::ModelProto* model, const std::string& key,
                 const std::string& value);

// Name, dtype, shape and axis names of a graph input or output.
void AddInfo(const Value& value, onnx::ValueInfoProto* info);

// The bodies of our ops that the graph uses, and the import of our domain.
void AddFunctions(const Graph& graph, onnx::ModelProto* model);

}  // namespace onnx_fp8
