// SPDX-License-Identifier: Apache-2.0
#include <charconv>
#include <cstring>
#include <filesystem>

#include "base/check.h"
#include "graph/onnx/external_data_internal.h"

namespace onnx_fp8 {
namespace {

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

const MappedFile& ExternalData::Map(const std::string& location,
                                    const std::string& who) {
  auto known = files_.find(location);
  if (known != files_.end()) return known->second;
  return files_[location] = MapFile(*Open(location, who));
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
  const MappedFile& file = Map(location, who);
  Check(offset <= file.size && length <= file.size - offset, "[", who,
        "] expected ", length, " bytes from ", offset, " on in ", location,
        ", which holds ", file.size);
  if (offset % ByteSize(dtype) != 0) {
    Tensor copy = Tensor::Allocate(dtype, std::move(shape));
    if (length > 0) std::memcpy(copy.raw(), file.data + offset, length);
    return copy;
  }
  return Tensor::View(dtype, std::move(shape), file.owner, file.data + offset);
}

}  // namespace onnx_fp8
