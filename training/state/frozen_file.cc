// SPDX-License-Identifier: Apache-2.0
#include "training/state/frozen_file.h"

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>

#include "base/check.h"
#include "base/hash.h"
#include "base/input_file.h"
#include "data/safetensors.h"
#include "training/state/tensor_checksum.h"

namespace onnx_fp8 {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kFrozenPrefix = "frozen_";
constexpr std::string_view kFrozenSuffix = ".safetensors";

// Digits of a hash, between prefix and suffix.
constexpr size_t kHashDigits = 16;

std::string FrozenFileName(const Json& tensors) {
  char digits[kHashDigits + 1];
  std::snprintf(digits, sizeof digits, "%016llx",
                static_cast<unsigned long long>(Hash(tensors.dump())));
  return Concat(kFrozenPrefix, digits, kFrozenSuffix);
}

// The tensors in their stored dtypes. When one is pulled, its checksum enters
// its entry.
SourceMap AsStored(const SourceMap& tensors, Json* entries) {
  SourceMap stored;
  for (const auto& [name, source] : tensors) {
    Json& entry = (*entries)[name];
    entry = {{"dtype", Name(source.dtype())},
             {"shape", source.shape()},
             {"stored", Name(source.stored())}};
    stored.emplace(
        name, TensorSource(source.stored(), source.shape(), [&source, &entry] {
          Tensor tensor = source.Pull();
          const DType dtype = source.stored();
          if (tensor.dtype() != dtype) {
            tensor = ConvertTo(tensor, dtype);
          }
          entry["crc32"] = Checksum(tensor);
          return tensor;
        }));
  }
  return stored;
}

// Whether a file, no link, of that size has the name.
bool HasFile(const std::string& path, uint64_t bytes) {
  namespace fs = std::filesystem;
  std::error_code none;
  const bool plain = fs::symlink_status(path, none).type() ==
                     std::filesystem::file_type::regular;
  return plain && fs::file_size(path, none) == bytes;
}

bool Links(const std::string& from, const std::string& to, uint64_t bytes,
           const FileHook& hook) {
  if (!HasFile(from, bytes)) return false;
  if (hook) hook("link " + to);
  std::error_code error;
  std::filesystem::create_hard_link(from, to, error);
  return !error;
}

FrozenFile WriteFrozenFile(const std::string& folder, const SourceMap& tensors,
                           const FileHook& hook) {
  const std::string temporary = TemporaryName(folder + "/frozen");
  try {
    Json entries = Json::object();
    OutputFile file(temporary, hook);
    WriteSafetensors(file, AsStored(tensors, &entries));
    file.Finish();
    const std::string name = FrozenFileName(entries);
    const std::string path = folder + "/" + name;
    RenamePath(temporary, path, hook);
    const Json entry = {
        {"file", name}, {"bytes", file.size()}, {"tensors", entries}};
    return {path, entry.dump()};
  } catch (const Json::exception& error) {
    RemoveTree(temporary);
    Fail("expected tensor names in UTF-8: ", error.what());
  } catch (...) {
    RemoveTree(temporary);
    throw;
  }
}

TensorSource SourceAs(DType dtype, const Tensor& stored) {
  const TensorSource own = SourceOfMapped(stored);
  if (dtype == stored.dtype()) return own;
  return TensorSource(
      dtype, stored.shape(),
      [own, dtype] { return ConvertTo(own.Pull(), dtype); }, stored.dtype());
}

}  // namespace

bool IsFrozenFileName(const std::string& name) {
  const size_t bytes =
      kFrozenPrefix.size() + kHashDigits + kFrozenSuffix.size();
  return name.size() == bytes && name.starts_with(kFrozenPrefix) &&
         name.ends_with(kFrozenSuffix) && name.find('/') == std::string::npos;
}

FrozenFile KeepFrozenFile(const std::string& folder, const SourceMap& tensors,
                          const std::optional<FrozenFile>& known,
                          const FileHook& hook) {
  if (!known) return WriteFrozenFile(folder, tensors, hook);
  const Json entry = Json::parse(known->entry);
  const std::string path = folder + "/" + entry["file"].get<std::string>();
  const auto bytes = entry["bytes"].get<uint64_t>();
  const bool is_there =
      HasFile(path, bytes) || Links(known->path, path, bytes, hook);
  if (!is_there) return WriteFrozenFile(folder, tensors, hook);
  return {path, known->entry};
}

FrozenFile FrozenFileIn(const std::string& folder, const std::string& entry,
                        const std::string& where) {
  const Json json = Json::parse(entry, nullptr, false);
  const bool fits = json.is_object() && json.contains("file") &&
                    json["file"].is_string() && json.contains("bytes") &&
                    json["bytes"].is_number_unsigned() &&
                    json.contains("tensors") && json["tensors"].is_object();
  Check(fits, "[", where, "] expected a file of frozen weights with its size ",
        "and tensors, got ", entry.substr(0, 80));
  const auto name = json["file"].get<std::string>();
  Check(IsFrozenFileName(name), "[", where, "] expected a file ", kFrozenPrefix,
        "….safetensors beside the checkpoints, got ", name);
  return {folder + "/" + name, entry};
}

SourceMap ReadFrozenFile(const FrozenFile& file) {
  const Json entry = Json::parse(file.entry);
  const uint64_t bytes = InputFile(file.path).size();
  Check(entry["bytes"] == bytes, "[", file.path, "] expected ",
        entry["bytes"].dump(), " bytes, got ", bytes, " (truncated or edited)");
  TensorMap held = ReadSafetensors(file.path);
  SourceMap tensors;
  for (const auto& [name, expected] : entry["tensors"].items()) {
    const auto own = held.extract(name);
    Check(!own.empty(), "[", file.path, "] lacks tensor \"", name, "\"");
    const Tensor& stored = own.mapped();
    const bool widens = expected.is_object() && expected.contains("dtype") &&
                        expected["dtype"] == Name(DType::kFloat) &&
                        IsHalf(stored.dtype());
    const DType dtype = widens ? DType::kFloat : stored.dtype();
    const Json got = {{"dtype", Name(dtype)},
                      {"shape", stored.shape()},
                      {"stored", Name(stored.dtype())},
                      {"crc32", Checksum(stored)}};
    Check(got == expected, "[", file.path, "] tensor \"", name,
          "\" was damaged or edited: expected ", expected.dump(), ", got ",
          got.dump());
    tensors.emplace(name, SourceAs(dtype, stored));
  }
  Check(held.empty(), "[", file.path, "] holds a foreign tensor \"",
        held.empty() ? "" : held.begin()->first, "\"");
  return tensors;
}

}  // namespace onnx_fp8
