// SPDX-License-Identifier: Apache-2.0
#include "training/checkpoint_files.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/mapped_file.h"
#include "base/parallel.h"
#include "base/shallow_json.h"
#include "data/safetensors.h"

namespace onnx_fp8 {
namespace {

using Json = nlohmann::json;

constexpr char kCheckpointFormat[] = "onnx_fp8 checkpoint";
// A checkpoint without shards is of the first version.
constexpr int kWholeVersion = 1, kShardsVersion = 2;
// This times the batches per step still fits 64 bits.
constexpr int64_t kMaxSteps = int64_t{1} << 40;
constexpr char kManifestFile[] = "/manifest.json";

std::string StateFile(int rank) {
  if (rank == 0) return "state.safetensors";
  char name[40];
  std::snprintf(name, sizeof name, "state.%05d.safetensors", rank);
  return name;
}

std::string UtcNow() {
  std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

// Computed on all threads.
std::string Checksum(const Tensor& tensor) {
  constexpr int64_t kPart = int64_t{1} << 20;
  auto bytes = static_cast<int64_t>(tensor.bytes());
  std::vector<uint32_t> parts(static_cast<size_t>((bytes + kPart - 1) / kPart));
  auto length = [&](int64_t part) {
    return std::min(kPart, bytes - part * kPart);
  };
  ParallelFor(std::ssize(parts), 1, [&](int64_t begin, int64_t end) {
    auto* data = static_cast<const std::byte*>(tensor.raw());
    for (int64_t i = begin; i < end; ++i) {
      parts[static_cast<size_t>(i)] =
          Crc32(data + i * kPart, static_cast<size_t>(length(i)));
    }
  });
  uint32_t sum = 0;  // checksum of no bytes
  for (int64_t i = 0; i < std::ssize(parts); ++i) {
    sum = CombineCrc32(sum, parts[static_cast<size_t>(i)],
                       static_cast<size_t>(length(i)));
  }
  return Hex(sum);
}

// Rows [begin, begin + rows): a view, without the bytes of other rows.
Tensor RowsOf(const Tensor& tensor, int64_t begin, int64_t rows) {
  Shape shape = tensor.shape();
  const size_t row =
      shape[0] > 0 ? tensor.bytes() / static_cast<size_t>(shape[0]) : 0;
  shape[0] = rows;
  return Tensor::View(
      tensor.dtype(), shape, std::make_shared<Tensor>(tensor),
      const_cast<std::byte*>(static_cast<const std::byte*>(tensor.raw())) +
          static_cast<size_t>(begin) * row);
}

// The tensors that a rank writes. When one is pulled, its checksum enters its
// entry.
SourceMap Observed(const SourceMap& state, bool first,
                   const std::map<std::string, Shard>& shards, Json* entries) {
  SourceMap observed;
  for (const auto& [name, source] : state) {
    auto it = shards.find(name);
    const Shard* shard = it == shards.end() ? nullptr : &it->second;
    if (shard ? shard->rows == 0 : !first) continue;
    Json& entry = (*entries)[name];
    Shape shape = source.shape();
    entry = {{"dtype", Name(source.dtype())},
             {"shape", shard ? shard->whole : shape}};
    if (shard) {
      entry["begin"] = shard->begin;
      entry["rows"] = shape[0] = shard->rows;
    }
    observed.emplace(
        name, TensorSource(source.dtype(), shape, [&source, &entry, shard] {
          Tensor tensor = source.Pull();
          if (shard) {
            tensor = RowsOf(tensor, 0, shard->rows);
          }
          entry["crc32"] = Checksum(tensor);
          return tensor;
        }));
  }
  return observed;
}

// The manifest's own checksum covers its text without the last member.
std::string ManifestChecksum(Json manifest) {
  manifest.erase("crc32");
  std::string text = manifest.dump();
  return Hex(Crc32(text.data(), text.size()));
}

void AddEntry(const std::string& file, const std::string& name,
              const Json& entry, Json* tensors) {
  if (!entry.contains("begin")) {
    (*tensors)[name] = entry;
    return;
  }
  Json& tensor = (*tensors)[name];
  tensor["dtype"] = entry["dtype"];
  tensor["shape"] = entry["shape"];
  tensor["shards"].push_back({{"file", file},
                              {"axis", 0},
                              {"begin", entry["begin"]},
                              {"rows", entry["rows"]},
                              {"crc32", entry["crc32"]}});
}

Json ManifestOf(const Checkpoint& checkpoint,
                const std::vector<std::string>& entries) {
  Json manifest = {{"format", kCheckpointFormat},
                   {"version", kWholeVersion},
                   {"step", checkpoint.step},
                   {"seed", checkpoint.seed},
                   {"next_batch", checkpoint.next_batch},
                   {"model", checkpoint.model},
                   {"notes", checkpoint.notes},
                   {"saved_at", UtcNow()},
                   {"tensors", Json::object()}};
  for (const std::string& text : entries) {
    const Json file = Json::parse(text);
    const std::string name = file["file"];
    if (&text == &entries[0]) {
      manifest["state_bytes"] = file["bytes"];
    } else {
      manifest["version"] = kShardsVersion;
      manifest["files"][name] = file["bytes"];
    }
    for (const auto& [tensor, entry] : file["tensors"].items()) {
      AddEntry(name, tensor, entry, &manifest["tensors"]);
    }
  }
  return manifest;
}

// --- reading

// Errors, for a manifest that somebody else wrote: no such member, another
// kind.
const Json& Member(const Json& object, const char* key, Json::value_t kind,
                   const std::string& path) {
  auto it = object.is_object() ? object.find(key) : object.end();
  Check(it != object.end() &&
            (it->type() == kind || (kind == Json::value_t::number_integer &&
                                    it->is_number_integer())),
        "[", path, "] expected a checkpoint's manifest with \"", key, "\"");
  return *it;
}

constexpr auto kInt = Json::value_t::number_integer;
constexpr auto kString = Json::value_t::string;
constexpr auto kObject = Json::value_t::object;

Json ReadManifest(const std::string& path, const std::string& model) {
  MappedFile file = MapFile(path);
  const char* text = reinterpret_cast<const char*>(file.data);
  Json manifest = ParseShallowJson(text, file.size, 8,
                                   "[" + path + "] expected a manifest");
  Check(manifest.is_object(), "[", path,
        "] is no JSON object (truncated or edited?)");
  Check(Member(manifest, "format", kString, path) == kCheckpointFormat, "[",
        path, "] expected format \"", kCheckpointFormat, "\", got ",
        manifest["format"]);
  const Json& version = Member(manifest, "version", kInt, path);
  Check(version == kWholeVersion || version == kShardsVersion, "[", path,
        "] expected version ", kWholeVersion, " or ", kShardsVersion, ", got ",
        version, ": another version of onnx-fp8 wrote it");
  for (const char* key : {"step", "seed", "next_batch", "state_bytes"}) {
    Member(manifest, key, kInt, path);
  }
  for (const char* key : {"step", "next_batch"}) {
    const Json& count = manifest[key];
    Check(count >= 0 && count <= kMaxSteps, "[", path, "] expected \"", key,
          "\" in 0…", kMaxSteps, ", got ", count.dump());
  }
  for (const char* key : {"notes", "tensors"}) {
    Member(manifest, key, kObject, path);
  }
  for (const Json& note : manifest["notes"]) {
    Check(note.is_string(), "[", path, "] expected strings as notes");
  }
  Check(Member(manifest, "crc32", kString, path) == ManifestChecksum(manifest),
        "[", path, "] was edited: its checksum does not fit");
  std::string got = Member(manifest, "model", kString, path);
  Check(got == model || model == kAnyModel, "[", path,
        "] expected a checkpoint of model ", model, ", got one of ", got);
  return manifest;
}

class StateReader {
 public:
  StateReader(const std::string& folder, const Json& manifest)
      : folder_(folder), manifest_(manifest) {
    Open(StateFile(0), manifest["state_bytes"]);
    if (!manifest.contains("files")) return;
    for (const auto& [name, bytes] :
         Member(manifest, "files", kObject, folder + kManifestFile).items()) {
      Check(name.find('/') == std::string::npos, "[", folder, kManifestFile,
            "] expected files of the checkpoint's folder, got ", name);
      Open(name, bytes);
    }
  }

  void Read(Checkpoint* checkpoint) {
    const std::string path = folder_ + kManifestFile;
    for (const auto& [name, entry] : manifest_["tensors"].items()) {
      if (entry.is_object() && entry.contains("shards")) {
        checkpoint->shards[name] = ReadShards(name, entry, path);
      } else {
        checkpoint->state[name] = Take(StateFile(0), name, entry);
      }
    }
    for (const auto& [file, tensors] : files_) {
      Check(tensors.empty(), "[", folder_, "/", file,
            "] holds a foreign tensor \"",
            tensors.empty() ? "" : tensors.begin()->first, "\"");
    }
  }

 private:
  void Open(const std::string& name, const Json& expected) {
    const std::string path = folder_ + "/" + name;
    const uint64_t bytes = MapFile(path).size;
    Check(expected == bytes, "[", path, "] expected ", expected.dump(),
          " bytes, got ", bytes, " (truncated or edited)");
    files_[name] = ReadSafetensors(path);
  }

  // Moves the tensor out of its file. `expected`: dtype, shape and checksum.
  Tensor Take(const std::string& file, const std::string& name,
              const Json& expected) {
    auto at = files_.find(file);
    Check(at != files_.end() && at->second.contains(name), "[", folder_, "/",
          file, "] lacks tensor \"", name, "\"");
    Tensor tensor = at->second.at(name);
    at->second.erase(name);
    Json got = {{"dtype", Name(tensor.dtype())},
                {"shape", tensor.shape()},
                {"crc32", Checksum(tensor)}};
    Check(got == expected, "[", folder_, "/", file, "] tensor \"", name,
          "\" was damaged or edited: expected ", expected.dump(), ", got ",
          got.dump());
    return tensor;
  }

  ShardedTensor ReadShards(const std::string& name, const Json& entry,
                           const std::string& path) {
    ShardedTensor tensor;
    Json whole = {
        {"dtype", Member(entry, "dtype", kString, path)},
        {"shape", Member(entry, "shape", Json::value_t::array, path)}};
    int64_t rows = 0;
    for (const Json& shard :
         Member(entry, "shards", Json::value_t::array, path)) {
      const Json& count = Member(shard, "rows", kInt, path);
      Check(Member(shard, "axis", kInt, path) == 0 &&
                Member(shard, "begin", kInt, path) == rows,
            "[", path, "] tensor \"", name, "\": expected rows from ", rows,
            " on, got ", shard.dump());
      Json expected = whole;
      Check(!expected["shape"].empty(), "[", path, "] tensor \"", name,
            "\": expected an axis, got a scalar in shards");
      expected["shape"][0] = count;
      expected["crc32"] = Member(shard, "crc32", kString, path);
      tensor.parts.push_back(
          Take(Member(shard, "file", kString, path), name, expected));
      rows += tensor.parts.back().dim(0);
    }
    Check(!tensor.parts.empty() && whole["shape"][0] == rows, "[", path,
          "] tensor \"", name, "\": expected ", whole["shape"].dump(), ", got ",
          rows, " rows in its shards");
    tensor.dtype = tensor.parts[0].dtype();
    tensor.shape = tensor.parts[0].shape();
    tensor.shape[0] = rows;
    return tensor;
  }

  const std::string folder_;
  const Json& manifest_;
  std::map<std::string, TensorMap> files_;
};

}  // namespace

std::string WriteStateFile(const std::string& folder, int rank,
                           const SourceMap& state,
                           const std::map<std::string, Shard>& shards,
                           const FileHook& hook) {
  Json entries = Json::object();
  OutputFile file(folder + "/" + StateFile(rank), hook);
  WriteSafetensors(file, Observed(state, rank == 0, shards, &entries));
  file.Finish();
  Json written = {{"file", StateFile(rank)},
                  {"bytes", file.size()},
                  {"tensors", std::move(entries)}};
  try {
    return written.dump();
  } catch (const Json::exception& error) {
    Fail("expected tensor names in UTF-8: ", error.what());
  }
}

void WriteManifest(const std::string& folder, const Checkpoint& checkpoint,
                   const std::vector<std::string>& entries,
                   const FileHook& hook) {
  Json manifest = ManifestOf(checkpoint, entries);
  std::string text;
  try {
    manifest["crc32"] = ManifestChecksum(manifest);
    text = manifest.dump(1);
  } catch (const Json::exception& error) {
    Fail("expected tensor names and notes in UTF-8: ", error.what());
  }
  OutputFile file(folder + kManifestFile, hook);
  file.Write(text.data(), text.size());
  file.Finish();
}

Checkpoint ReadCheckpointFiles(const std::string& folder,
                               const std::string& model) {
  Json manifest = ReadManifest(folder + kManifestFile, model);
  Checkpoint checkpoint{.step = manifest["step"],
                        .seed = manifest["seed"],
                        .next_batch = manifest["next_batch"],
                        .model = model,
                        .notes = manifest["notes"]};
  StateReader(folder, manifest).Read(&checkpoint);
  return checkpoint;
}

std::string Checkpoint::TypeOf(const std::string& name) const {
  if (auto it = state.find(name); it != state.end()) {
    return Name(it->second.dtype()) + ToString(it->second.shape());
  }
  auto it = shards.find(name);
  if (it == shards.end()) return "none";
  return Name(it->second.dtype) + ToString(it->second.shape);
}

Tensor ShardedTensor::Rows(int64_t begin, int64_t rows) const {
  Shape wanted = shape;
  wanted[0] = rows;
  Tensor out = Tensor::Allocate(dtype, wanted);
  auto* to = static_cast<std::byte*>(out.raw());
  int64_t at = 0;
  for (const Tensor& part : parts) {
    const int64_t from = std::max(begin, at);
    const int64_t end = std::min(begin + rows, at + part.dim(0));
    if (from < end) {
      const Tensor some = RowsOf(part, from - at, end - from);
      std::memcpy(to, some.raw(), some.bytes());
      to += some.bytes();
    }
    at += part.dim(0);
  }
  return out;
}

}  // namespace onnx_fp8
