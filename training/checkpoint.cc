// SPDX-License-Identifier: Apache-2.0
#include "training/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <tuple>

#include "base/check.h"
#include "base/input_file.h"
#include "base/mapped_file.h"
#include "base/parallel.h"
#include "base/shallow_json.h"
#include "data/safetensors.h"

namespace onnx_fp8 {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr char kCheckpointFormat[] = "onnx_fp8 checkpoint";
constexpr int kVersion = 1;
// This times the batches per step still fits 64 bits.
constexpr int64_t kMaxSteps = int64_t{1} << 40;
constexpr char kStateFile[] = "/state.safetensors";
constexpr char kManifestFile[] = "/manifest.json";
constexpr std::string_view kStepPrefix = "step_";

// step_00000120, or step_00000120_2 if a step is saved again.
struct CheckpointName {
  int64_t step = 0;
  int64_t copy = 1;
  std::string text;

  auto Key() const { return std::tie(step, copy); }
};

bool ParseDigits(std::string_view text, int64_t* value) {
  auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size() &&
         *value >= 0;
}

std::optional<CheckpointName> ParseName(std::string_view text) {
  if (!text.starts_with(kStepPrefix)) return std::nullopt;
  CheckpointName name{.text = std::string(text)};
  std::string_view rest = text.substr(kStepPrefix.size());
  size_t bar = rest.find('_');
  if (!ParseDigits(rest.substr(0, bar), &name.step)) return std::nullopt;
  if (bar != std::string_view::npos &&
      !ParseDigits(rest.substr(bar + 1), &name.copy)) {
    return std::nullopt;
  }
  return name;
}

std::string FolderOf(const std::string& dir) { return dir + "/checkpoints"; }
std::string LatestOf(const std::string& dir) { return dir + "/latest"; }

std::vector<std::string> Entries(const std::string& dir) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(dir, error), end; !error && it != end;
       it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

// Oldest first.
std::vector<CheckpointName> ListCheckpoints(const std::string& dir) {
  std::vector<CheckpointName> names;
  for (const std::string& entry : Entries(FolderOf(dir))) {
    if (auto name = ParseName(entry)) names.push_back(*name);
  }
  std::ranges::sort(names, {}, &CheckpointName::Key);
  return names;
}

bool Exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// The text in `latest`; "" if there is none.
std::string LatestText(const std::string& dir) {
  if (!Exists(LatestOf(dir))) return "";
  InputFile file(LatestOf(dir));
  std::string text(std::min<uint64_t>(file.size(), 80), '\0');
  file.Read(text.data(), text.size(), 0);
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

// The checkpoint that `latest` names. Errors: its text is no checkpoint's name.
std::optional<CheckpointName> ReadLatest(const std::string& dir) {
  if (!Exists(LatestOf(dir))) return std::nullopt;
  std::string text = LatestText(dir);
  auto name = ParseName(text);
  Check(name.has_value(), "[", LatestOf(dir),
        "] expected the name of a checkpoint, got \"", text, "\"");
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

// The same tensors; when a tensor is pulled, `sums` gets its checksum under its
// name.
SourceMap WithChecksums(const SourceMap& state,
                        std::map<std::string, std::string>* sums) {
  SourceMap observed;
  for (const auto& [name, source] : state) {
    std::string* sum = &(*sums)[name];
    observed.emplace(
        name, TensorSource(source.dtype(), source.shape(), [&source, sum] {
          Tensor tensor = source.Pull();
          *sum = Checksum(tensor);
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

std::string ManifestText(const Checkpoint& checkpoint, const SourceMap& state,
                         const std::map<std::string, std::string>& sums,
                         uint64_t state_bytes) {
  Json tensors = Json::object();
  for (const auto& [name, tensor] : state) {
    tensors[name] = {{"dtype", Name(tensor.dtype())},
                     {"shape", tensor.shape()},
                     {"crc32", sums.at(name)}};
  }
  Json manifest = {{"format", kCheckpointFormat},
                   {"version", kVersion},
                   {"step", checkpoint.step},
                   {"seed", checkpoint.seed},
                   {"next_batch", checkpoint.next_batch},
                   {"model", checkpoint.model},
                   {"notes", checkpoint.notes},
                   {"saved_at", UtcNow()},
                   {"state_bytes", state_bytes},
                   {"tensors", tensors}};
  try {
    manifest["crc32"] = ManifestChecksum(manifest);
    return manifest.dump(1);
  } catch (const Json::exception& error) {
    Fail("expected tensor names and notes in UTF-8: ", error.what());
  }
}

void WriteFolder(const std::string& folder, const Checkpoint& checkpoint,
                 const SourceMap& state, const FileHook& hook) {
  MakeNewDirectory(folder, hook);
  std::map<std::string, std::string> sums;
  OutputFile file(folder + kStateFile, hook);
  WriteSafetensors(file, WithChecksums(state, &sums));
  file.Finish();
  std::string text = ManifestText(checkpoint, state, sums, file.size());
  OutputFile manifest(folder + kManifestFile, hook);
  manifest.Write(text.data(), text.size());
  manifest.Finish();
  SyncDirectory(folder, hook);
}

// Renames it to a temporary name first: half of a checkpoint must never have
// the name of a checkpoint.
void RemoveCheckpoint(const std::string& path, const FileHook& hook = {}) {
  std::string temporary = TemporaryName(path);
  RemoveTree(temporary);
  std::error_code error;
  if (hook) hook("retire " + path);
  fs::rename(path, temporary, error);
  if (!error) RemoveTree(temporary, hook);
}

// A name that no checkpoint has.
std::string FreshName(const std::string& dir, int64_t step) {
  char digits[32];
  std::snprintf(digits, sizeof digits, "%08lld", static_cast<long long>(step));
  std::string base = std::string(kStepPrefix) + digits;
  std::string name = base;
  for (int copy = 2; Exists(FolderOf(dir) + "/" + name); ++copy) {
    name = base + "_" + std::to_string(copy);
  }
  return name;
}

// Keeps `name` and the keep - 1 checkpoints before it.
void Prune(const std::string& dir, const std::string& name, int keep,
           const FileHook& hook) {
  std::vector<CheckpointName> all = ListCheckpoints(dir);
  std::ranges::reverse(all);
  CheckpointName newest = *ParseName(name);
  int kept = 1;
  for (const CheckpointName& old : all) {
    if (old.text == name) continue;
    if (old.Key() < newest.Key() && kept < keep) {
      ++kept;
    } else {
      RemoveCheckpoint(FolderOf(dir) + "/" + old.text, hook);
    }
  }
}

// --- reading

// Errors, for a manifest that somebody else wrote: no such member, another
// kind.
const Json& Member(const Json& object, const char* key, Json::value_t kind,
                   const std::string& path) {
  auto it = object.find(key);
  Check(it != object.end() &&
            (it->type() == kind || (kind == Json::value_t::number_integer &&
                                    it->is_number_integer())),
        "[", path, "] expected a checkpoint's manifest with \"", key, "\"");
  return *it;
}

Json ReadManifest(const std::string& path, const std::string& model) {
  MappedFile file = MapFile(path);
  const char* text = reinterpret_cast<const char*>(file.data);
  Json manifest = ParseShallowJson(text, file.size, 8,
                                   "[" + path + "] expected a manifest");
  Check(manifest.is_object(), "[", path,
        "] is no JSON object (truncated or edited?)");
  constexpr auto kInt = Json::value_t::number_integer;
  constexpr auto kString = Json::value_t::string;
  constexpr auto kObject = Json::value_t::object;
  Check(Member(manifest, "format", kString, path) == kCheckpointFormat, "[",
        path, "] expected format \"", kCheckpointFormat, "\", got ",
        manifest["format"]);
  Check(Member(manifest, "version", kInt, path) == kVersion, "[", path,
        "] expected version ", kVersion, ", got ", manifest["version"],
        ": another version of onnx-fp8 wrote it");
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

void CheckState(const TensorMap& state, const Json& manifest,
                const std::string& path) {
  const Json& tensors = manifest["tensors"];
  for (const auto& [name, entry] : tensors.items()) {
    Check(state.contains(name), "[", path, "] lacks tensor \"", name, "\"");
  }
  for (const auto& [name, tensor] : state) {
    Check(tensors.contains(name), "[", path, "] holds a foreign tensor \"",
          name, "\"");
    Json expected = {{"dtype", Name(tensor.dtype())},
                     {"shape", tensor.shape()},
                     {"crc32", Checksum(tensor)}};
    Check(tensors[name] == expected, "[", path, "] tensor \"", name,
          "\" was damaged or edited: expected ", tensors[name].dump(), ", got ",
          expected.dump());
  }
}

// Advice for a user who can't resume from `name`.
std::string WayOut(const std::string& dir, const std::string& name) {
  std::vector<CheckpointName> all = ListCheckpoints(dir);
  std::erase_if(all, [&](const auto& other) { return other.text == name; });
  if (all.empty()) return "; there is no other checkpoint";
  return Concat("; to resume from an older checkpoint: echo ", all.back().text,
                " > ", LatestOf(dir));
}

}  // namespace

std::string SaveCheckpoint(const std::string& dir, const Checkpoint& checkpoint,
                           const SourceMap& state, const SaveOptions& options) {
  Check(options.keep >= 1 && checkpoint.step >= 0,
        "expected to keep a checkpoint and a step from 0 on, got keep ",
        options.keep, ", step ", checkpoint.step);
  const FileHook& hook = options.hook;
  MakeDirectories(FolderOf(dir), hook);
  std::string name = FreshName(dir, checkpoint.step);
  std::string folder = FolderOf(dir) + "/" + name;
  std::string temporary = TemporaryName(folder);
  try {
    RemoveTree(temporary);
    WriteFolder(temporary, checkpoint, state, hook);
    if (options.before_rename) options.before_rename();
    RenamePath(temporary, folder, hook);
    SyncDirectory(FolderOf(dir), hook);
    WriteFileAtomically(LatestOf(dir), name + "\n", hook);
  } catch (...) {
    RemoveTree(temporary);
    if (LatestText(dir) != name) RemoveCheckpoint(folder);
    throw;
  }
  Prune(dir, name, options.keep, hook);
  return folder;
}

std::optional<Checkpoint> LoadLatestCheckpoint(const std::string& dir,
                                               const std::string& model) {
  std::vector<CheckpointName> all = ListCheckpoints(dir);
  std::optional<CheckpointName> latest = ReadLatest(dir);
  if (!latest && !all.empty()) latest = all.back();
  if (!latest) return std::nullopt;
  try {
    return LoadCheckpoint(FolderOf(dir) + "/" + latest->text, model);
  } catch (const Error& error) {
    Fail(error.what(), WayOut(dir, latest->text));
  }
}

Checkpoint LoadCheckpoint(const std::string& folder, const std::string& model) {
  Json manifest = ReadManifest(folder + kManifestFile, model);
  Checkpoint checkpoint{.step = manifest["step"],
                        .seed = manifest["seed"],
                        .next_batch = manifest["next_batch"],
                        .model = model,
                        .notes = manifest["notes"]};
  std::string path = folder + kStateFile;
  uint64_t bytes = MapFile(path).size;
  Check(manifest["state_bytes"] == bytes, "[", path, "] expected ",
        manifest["state_bytes"].dump(), " bytes, got ", bytes,
        " (truncated or edited)");
  checkpoint.state = ReadSafetensors(path);
  CheckState(checkpoint.state, manifest, path);
  return checkpoint;
}

std::vector<std::string> CleanLeftovers(const std::string& dir) {
  std::vector<std::string> removed;
  auto remove = [&](const std::string& path) {
    if (RemoveTree(path)) removed.push_back(path);
  };
  for (const std::string& entry : Entries(dir)) {
    bool ours =
        entry.starts_with("latest.") || entry.starts_with("metrics.jsonl.");
    if (ours && IsTemporaryName(entry)) remove(dir + "/" + entry);
  }
  for (const std::string& entry : Entries(FolderOf(dir))) {
    if (entry.starts_with(kStepPrefix) && IsTemporaryName(entry)) {
      remove(FolderOf(dir) + "/" + entry);
    }
  }
  std::vector<CheckpointName> all = ListCheckpoints(dir);
  std::optional<CheckpointName> latest = ReadLatest(dir);
  // If the checkpoint that `latest` names is missing, only newer ones are left.
  if (!latest ||
      !std::ranges::count(all, latest->text, &CheckpointName::text)) {
    return removed;
  }
  for (const CheckpointName& name : all) {
    if (name.Key() <= latest->Key()) continue;
    RemoveCheckpoint(FolderOf(dir) + "/" + name.text);
    removed.push_back(FolderOf(dir) + "/" + name.text);
  }
  return removed;
}

bool HoldsRun(const std::string& dir) {
  return Exists(LatestOf(dir)) || Exists(dir + "/metrics.jsonl") ||
         !ListCheckpoints(dir).empty();
}

}  // namespace onnx_fp8
