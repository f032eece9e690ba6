// SPDX-License-Identifier: Apache-2.0
//
// Tensors that a model keeps in other files. Internal to graph/.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "base/mapped_file.h"
#include "graph/onnx/onnx_convert_internal.h"
#include "graph/onnx/onnx_io.h"

namespace onnx_fp8 {

// Maps the data files of one model, each once.
class ExternalData {
 public:
  // `model` is the model file's path; data must lie in its folder or below. If
  // the path is a link, this is the link's folder, as with other loaders, not
  // its target's.
  explicit ExternalData(std::string model) : model_(std::move(model)) {}

  // As ReadOptions::missing.
  void set_missing(MissingData* names) { missing_ = names; }

  // A view of the mapped bytes. Nothing is read or copied, unless the offset is
  // no multiple of the element size. Errors: a location that is absolute,
  // leaves the folder or passes a link; a file that is missing or too short;
  // `who` begins the message.
  Tensor Read(const onnx::TensorProto& proto, const std::string& who);

  // A whole file, with Read's errors.
  const MappedFile& Map(const std::string& location, const std::string& who);
  // The same, to read it piece by piece.
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
  std::map<std::string, MappedFile> files_;
};

}  // namespace onnx_fp8
