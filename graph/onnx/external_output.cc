// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <filesystem>

#include "base/check.h"
#include "base/file.h"
#include "graph/onnx/model_file_internal.h"
#include "graph/onnx/onnx_convert_internal.h"

namespace onnx_fp8 {
namespace {

namespace fs = std::filesystem;

// Smaller tensors stay in the model, as with onnx.save_model.
constexpr size_t kSmallest = 1024;
// The page size, which the ONNX standard recommends for mapping.
constexpr uint64_t kAlignment = 4096;
// Size of a tensor's fields in the model, beside its bytes.
constexpr size_t kFieldBytes = 16;

bool IsZero(const void* data, size_t size) {
  const char* bytes = static_cast<const char*>(data);
  return bytes[0] == 0 && std::memcmp(bytes, bytes + 1, size - 1) == 0;
}

// Whether there is a model at `path` that keeps data in `file`.
bool KeepsDataIn(const std::string& path, const fs::path& file) {
  std::error_code none;
  if (!IsRegularFile(path)) return false;
  try {
    ModelFile model = ReadModelFile(path);
    for (const std::string& location : DataLocations(model.model)) {
      fs::path data = fs::absolute(path).parent_path() / location;
      if (fs::equivalent(data, file, none)) return true;
    }
  } catch (const Error&) {
    // It is no model.
  }
  return false;
}

// Writes the initializers' bytes behind one another.
class DataFile {
 public:
  DataFile(const std::string& path, std::string location)
      : file_(path), location_(std::move(location)) {}

  // Moves the bytes of the initializer to the file. `size` > 0.
  void Take(const void* data, size_t size, onnx::TensorProto* proto) {
    file_.Skip((kAlignment - file_.size() % kAlignment) % kAlignment);
    uint64_t offset = file_.size();
    // Moments that have not moved yet become a hole.
    if (IsZero(data, size)) {
      file_.Skip(size);
    } else {
      file_.Write(data, size);
    }
    proto->clear_raw_data();
    proto->set_data_location(onnx::TensorProto::EXTERNAL);
    auto add = [proto](const char* key, const std::string& value) {
      auto* entry = proto->add_external_data();
      entry->set_key(key);
      entry->set_value(value);
    };
    add("location", location_);
    add("offset", std::to_string(offset));
    add("length", std::to_string(size));
  }

  void Finish() { file_.Finish(); }

 private:
  OutputFile file_;
  std::string location_;
};

void SetRawData(const TensorSource& source, onnx::TensorProto* proto) {
  Tensor tensor = source.Pull();
  proto->set_raw_data(tensor.raw(), tensor.bytes());
}

void MoveOut(onnx::ModelProto* model, const SourceMap& contents,
             DataFile* file) {
  for (auto& proto : *model->mutable_graph()->mutable_initializer()) {
    if (proto.data_location() == onnx::TensorProto::EXTERNAL) continue;
    auto it = contents.find(proto.name());
    if (it == contents.end()) {
      if (proto.raw_data().size() < kSmallest) continue;
      std::string bytes = std::move(*proto.mutable_raw_data());
      file->Take(bytes.data(), bytes.size(), &proto);
    } else if (it->second.bytes() >= kSmallest) {
      Tensor tensor = it->second.Pull();
      file->Take(tensor.raw(), tensor.bytes(), &proto);
    } else {
      SetRawData(it->second, &proto);
    }
  }
}

void WriteText(const onnx::ModelProto& model, const std::string& path,
               const std::string& temporary) {
  Check(model.ByteSizeLong() <= static_cast<size_t>(INT32_MAX), "[", path,
        "] can't be written: ONNX models end at 2 GiB, this one has ",
        model.ByteSizeLong(), " bytes beside its external data");
  std::string text = model.SerializeAsString();
  OutputFile file(temporary);
  file.Write(text.data(), text.size());
  file.Finish();
}

// Both files are complete before a name changes, and the old model is removed
// before its data: at no moment does a model stand beside data of another one.
void WriteBoth(onnx::ModelProto* model, const SourceMap& contents,
               const std::string& path) {
  std::string data = path + kDataSuffix;
  std::string model_part = TemporaryName(path);
  std::string data_part = TemporaryName(data);
  try {
    DataFile file(data_part, fs::path(data).filename().string());
    MoveOut(model, contents, &file);
    file.Finish();
    WriteText(*model, path, model_part);
    std::error_code none;
    if (PathExists(data)) fs::remove(path, none);
    RenamePath(data_part, data);
    RenamePath(model_part, path);
  } catch (...) {
    RemoveTree(data_part);
    RemoveTree(model_part);
    throw;
  }
  std::string folder = fs::path(path).parent_path().string();
  SyncDirectory(folder.empty() ? "." : folder);
}

}  // namespace

void WriteModelFile(onnx::ModelProto* model, const SourceMap& contents,
                    const std::string& path, const std::string& source,
                    const WriteOptions& options) {
  std::error_code none;
  size_t size = model->ByteSizeLong();
  for (const auto& [name, tensor] : contents) {
    size += tensor.bytes() + kFieldBytes;
  }
  if (options.external_data || size > options.largest) {
    std::string data = path + kDataSuffix;
    CheckDataName(data, fs::path(data).filename().string());
    bool replaces = fs::exists(fs::symlink_status(data, none));
    Check(!replaces || (KeepsDataIn(path, data) && !KeepsDataIn(source, data)),
          "[", data, "] would be replaced by the external data of ", path,
          ", but is not the old ones: remove it or write to another file");
    WriteBoth(model, contents, path);
    return;
  }
  for (auto& proto : *model->mutable_graph()->mutable_initializer()) {
    auto it = contents.find(proto.name());
    if (it == contents.end()) continue;
    SetRawData(it->second, &proto);
  }
  WriteFileAtomically(path, model->SerializeAsString());
}

}  // namespace onnx_fp8
