// SPDX-License-Identifier: Apache-2.0
#include "training/state/checkpoint_files.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/input_file.h"
#include "base/mapped_file.h"
#include "base/shallow_json.h"
#include "data/safetensors.h"
#include "onnx_fp8/tensor_range.h"
#include "training/state/tensor_checksum.h"

namespace onnx_fp8 {
namespace {

using Json = nlohmann::json;

constexpr char kCheckpointFormat[] = "onnx_fp8 checkpoint";
// A checkpoint without shards is of the first version. In the third one some
// shards are of parts of tensors. The fourth one has frozen weights in a file
// that checkpoints share.
constexpr int kWholeVersion = 1, kShardsVersion = 2, kPartsVersion = 3,
              kFrozenVersion = 4;
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

// Errors: NaN or Inf. The codes of a moment have a NaN for a large number.
void CheckFinite(const std::string& name, const Tensor& tensor) {
  if (!IsFloat(tensor.dtype())) return;
  const int64_t at = FirstNotFinite(tensor);
  if (at < 0) return;
  Fail("[", name, "] expected finite numbers in a checkpoint, got ",
       std::isnan(DoubleAt(tensor, at)) ? "NaN" : "Inf", " as element ", at,
       " of ", Name(tensor.dtype()), ToString(tensor.shape()));
}

// The tensors that a rank writes. When one is pulled, its checksum enters its
// entry.
SourceMap Observed(const SourceMap& state, bool first,
                   const SaveOptions& options, Json* entries) {
  SourceMap observed;
  for (const auto& [name, source] : state) {
    auto it = options.shards.find(name);
    const Shard* shard = it == options.shards.end() ? nullptr : &it->second;
    const std::string* finite = options.finite.contains(name) ? &name : nullptr;
    if (shard ? shard->rows == 0 : !first) continue;
    Json& entry = (*entries)[name];
    Shape shape = source.shape();
    entry = {{"dtype", Name(source.dtype())},
             {"shape", shard ? shard->whole : shape}};
    if (shard) {
      entry["begin"] = shard->begin;
      shape = shard->part;
      entry["rows"] = shape[0] = shard->rows;
      if (const auto& part = shard->tensor_part) {
        entry["part"] = {{"axis", part->split.axis},
                         {"blocks", part->split.blocks},
                         {"rank", part->rank},
                         {"ranks", part->ranks}};
      }
    }
    observed.emplace(
        name,
        TensorSource(source.dtype(), shape, [&source, &entry, shard, finite] {
          Tensor tensor = source.Pull();
          if (shard) {
            tensor = RowsOf(tensor, 0, shard->rows);
          }
          if (finite) CheckFinite(*finite, tensor);
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
  Json shard = {{"file", file},
                {"axis", 0},
                {"begin", entry["begin"]},
                {"rows", entry["rows"]},
                {"crc32", entry["crc32"]}};
  if (entry.contains("part")) shard["part"] = entry["part"];
  tensor["shards"].push_back(std::move(shard));
}

Json ManifestOf(const Checkpoint& checkpoint,
                const std::vector<std::string>& entries,
                const std::string& frozen) {
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
      manifest["version"] =
          std::max(manifest["version"].get<int>(), kShardsVersion);
      manifest["files"][name] = file["bytes"];
    }
    for (const auto& [tensor, entry] : file["tensors"].items()) {
      if (entry.contains("part")) manifest["version"] = kPartsVersion;
      AddEntry(name, tensor, entry, &manifest["tensors"]);
    }
  }
  if (!frozen.empty()) {
    manifest["version"] = kFrozenVersion;
    manifest["frozen"] = Json::parse(frozen);
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
constexpr auto kArray = Json::value_t::array;

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
  Check(version >= kWholeVersion && version <= kFrozenVersion, "[", path,
        "] expected version ", kWholeVersion, " to ", kFrozenVersion, ", got ",
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

// The file of frozen weights that the manifest names; it lies beside the
// checkpoint's folder.
std::optional<FrozenFile> FrozenFileOf(const std::string& folder,
                                       const Json& manifest) {
  if (!manifest.contains("frozen")) return std::nullopt;
  return FrozenFileIn(std::filesystem::path(folder).parent_path().string(),
                      manifest["frozen"].dump(), folder + kManifestFile);
}

// The names of the files of state. Errors: a file is missing, or has another
// size than the manifest says.
std::vector<std::string> StateFiles(const std::string& folder,
                                    const Json& manifest) {
  std::vector<std::string> names;
  const auto add = [&](const std::string& name, const Json& expected) {
    const std::string path = folder + "/" + name;
    const uint64_t bytes = InputFile(path).size();
    Check(expected == bytes, "[", path, "] expected ", expected.dump(),
          " bytes, got ", bytes, " (truncated or edited)");
    names.push_back(name);
  };
  add(StateFile(0), manifest["state_bytes"]);
  if (!manifest.contains("files")) return names;
  for (const auto& [name, bytes] :
       Member(manifest, "files", kObject, folder + kManifestFile).items()) {
    Check(name.find('/') == std::string::npos, "[", folder, kManifestFile,
          "] expected files of the checkpoint's folder, got ", name);
    add(name, bytes);
  }
  return names;
}

class StateReader {
 public:
  StateReader(const std::string& folder, const Json& manifest)
      : folder_(folder), manifest_(manifest) {
    for (const std::string& name : StateFiles(folder, manifest)) {
      files_[name] = ReadSafetensors(folder + "/" + name);
    }
  }

  void Read(const TensorsToRead& only, Checkpoint* checkpoint) {
    const std::string path = folder_ + kManifestFile;
    for (const auto& [name, entry] : manifest_["tensors"].items()) {
      if (only && !only->contains(name)) continue;
      if (entry.is_object() && entry.contains("shards")) {
        checkpoint->shards[name] = ReadShards(name, entry, path);
      } else {
        checkpoint->state[name] = Take(StateFile(0), name, entry);
      }
    }
    if (only) return;
    for (const auto& [file, tensors] : files_) {
      Check(tensors.empty(), "[", folder_, "/", file,
            "] holds a foreign tensor \"",
            tensors.empty() ? "" : tensors.begin()->first, "\"");
    }
  }

 private:
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
    const std::string where = Concat("[", path, "] tensor \"", name, "\"");
    ShardedTensor tensor;
    const Json& dtype = Member(entry, "dtype", kString, path);
    tensor.shape = ReadShape(Member(entry, "shape", kArray, path), where);
    const Json& shards = Member(entry, "shards", kArray, path);
    const auto part = [&](size_t i) {
      return shards[i].is_object() && shards[i].contains("part")
                 ? ReadPart(shards[i]["part"], tensor.shape, path, where)
                 : TensorPart{};
    };
    Check(!shards.empty(), where, ": expected shards, got none");
    tensor.split = part(0).split;
    tensor.ranks = part(0).ranks;
    const Shape shape = PartOf(tensor.shape, tensor.split, tensor.ranks);
    std::vector<int64_t> rows(static_cast<size_t>(tensor.ranks));
    tensor.parts.resize(rows.size());
    for (size_t i = 0; i < shards.size(); ++i) {
      const Json& shard = shards[i];
      const TensorPart of = part(i);
      Check(of.split == tensor.split && of.ranks == tensor.ranks, where,
            ": expected parts of one kind, got ", shard.dump());
      int64_t& begin = rows[static_cast<size_t>(of.rank)];
      const Json& count = Member(shard, "rows", kInt, path);
      Check(Member(shard, "axis", kInt, path) == 0 &&
                Member(shard, "begin", kInt, path) == begin,
            where, ": expected rows from ", begin, " on, got ", shard.dump());
      Json expected = {{"dtype", dtype},
                       {"shape", shape},
                       {"crc32", Member(shard, "crc32", kString, path)}};
      expected["shape"][0] = count;
      const Tensor some =
          Take(Member(shard, "file", kString, path), name, expected);
      begin += some.dim(0);
      tensor.dtype = some.dtype();
      tensor.parts[static_cast<size_t>(of.rank)].push_back(some);
    }
    for (int64_t got : rows) {
      Check(got == shape[0], where, ": expected ", shape[0],
            " rows in the shards of each part, got ", got);
    }
    return tensor;
  }

  static Shape ReadShape(const Json& sizes, const std::string& where) {
    Shape shape;
    for (const Json& size : sizes) {
      Check(size.is_number_integer() && size >= 0 && size <= kMaxSteps, where,
            ": expected sizes, got ", sizes.dump());
      shape.push_back(size);
    }
    Check(!shape.empty(), where, ": expected an axis, got a scalar in shards");
    return shape;
  }

  static TensorPart ReadPart(const Json& json, const Shape& whole,
                             const std::string& path,
                             const std::string& where) {
    const auto number = [&](const char* key, int64_t least, int64_t most) {
      const Json& value = Member(json, key, kInt, path);
      Check(value >= least && value <= most, where, ": expected \"", key,
            "\" in ", least, "…", most, ", got ", value.dump());
      return value.get<int64_t>();
    };
    TensorPart part;
    part.split.axis = number("axis", 0, std::ssize(whole) - 1);
    const int64_t size = whole[static_cast<size_t>(part.split.axis)];
    part.split.blocks = number("blocks", 1, std::max<int64_t>(size, 1));
    part.ranks = number("ranks", 1, kMostRanks);
    part.rank = number("rank", 0, part.ranks - 1);
    Check(part.split.blocks == 1 || IsEven(whole, part.split, part.ranks),
          where, ": expected parts that divide ", ToString(whole), ", got ",
          json.dump());
    return part;
  }

  const std::string folder_;
  const Json& manifest_;
  std::map<std::string, TensorMap> files_;
};

}  // namespace

bool HoldsCheckpointFiles(const std::string& folder) {
  return IsRegularFile(folder + kManifestFile);
}

std::string WriteStateFile(const std::string& folder, int rank,
                           const SourceMap& state, const SaveOptions& options,
                           const FileHook& hook) {
  Json entries = Json::object();
  OutputFile file(folder + "/" + StateFile(rank), hook);
  WriteSafetensors(file, Observed(state, rank == 0, options, &entries));
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
                   const std::string& frozen, const FileHook& hook) {
  Json manifest = ManifestOf(checkpoint, entries, frozen);
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
                               const std::string& model,
                               const TensorsToRead& only) {
  Json manifest = ReadManifest(folder + kManifestFile, model);
  Checkpoint checkpoint{.step = manifest["step"],
                        .seed = manifest["seed"],
                        .next_batch = manifest["next_batch"],
                        .model = model,
                        .notes = manifest["notes"]};
  if (only && only->empty()) {
    StateFiles(folder, manifest);
    return checkpoint;
  }
  StateReader(folder, manifest).Read(only, &checkpoint);
  if (only) return checkpoint;
  checkpoint.frozen_file = FrozenFileOf(folder, manifest);
  if (checkpoint.frozen_file) {
    checkpoint.frozen = ReadFrozenFile(*checkpoint.frozen_file);
  }
  for (const auto& [name, source] : checkpoint.frozen) {
    Check(!manifest["tensors"].contains(name), "[", folder, kManifestFile,
          "] expected every tensor in one file, got \"", name, "\", which ",
          checkpoint.frozen_file->path, " holds too");
  }
  return checkpoint;
}

std::string NameOfFrozenFile(const std::string& folder) {
  const Json manifest = ReadManifest(folder + kManifestFile, kAnyModel);
  const std::optional<FrozenFile> file = FrozenFileOf(folder, manifest);
  return file ? std::filesystem::path(file->path).filename().string() : "";
}

std::string Checkpoint::TypeOf(const std::string& name) const {
  if (auto it = state.find(name); it != state.end()) {
    return Name(it->second.dtype()) + ToString(it->second.shape());
  }
  if (auto it = frozen.find(name); it != frozen.end()) {
    return Name(it->second.dtype()) + ToString(it->second.shape());
  }
  auto it = shards.find(name);
  if (it == shards.end()) return "none";
  return Name(it->second.dtype) + ToString(it->second.shape);
}

Tensor ShardedTensor::Rows(int64_t begin, int64_t rows) const {
  return RowsOfPart(0, begin, rows);
}

Tensor ShardedTensor::Whole() const {
  Tensor whole = Tensor::Allocate(dtype, shape);
  const int64_t rows = PartOf(shape, split, ranks)[0];
  for (int64_t rank = 0; rank < ranks; ++rank) {
    PutPart(RowsOfPart(rank, 0, rows), split, rank, ranks, &whole);
  }
  return whole;
}

Tensor ShardedTensor::RowsOfPart(int64_t rank, int64_t begin,
                                 int64_t rows) const {
  Shape wanted = PartOf(shape, split, ranks);
  wanted[0] = rows;
  Tensor out = Tensor::Allocate(dtype, wanted);
  auto* to = static_cast<std::byte*>(out.raw());
  int64_t at = 0;
  for (const Tensor& part : parts[static_cast<size_t>(rank)]) {
    const int64_t from = std::max(begin, at);
    const int64_t end = std::min(begin + rows, at + part.dim(0));
    if (from < end) {
      const Tensor some = RowsOf(part, from - at, end - from);
      CopyMapped(some.raw(), some.bytes(), to);
      to += some.bytes();
    }
    at += part.dim(0);
  }
  return out;
}

}  // namespace onnx_fp8
