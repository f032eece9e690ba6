// SPDX-License-Identifier: Apache-2.0
#include "training/state/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <set>
#include <tuple>

#include "base/check.h"
#include "base/file.h"
#include "base/input_file.h"
#include "collectives/agreement.h"
#include "training/state/checkpoint_files.h"
#include "training/state/evidence.h"

namespace onnx_fp8 {
namespace {

namespace fs = std::filesystem;

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

// The text in `latest`; "" if there is none.
std::string LatestText(const std::string& dir) {
  if (!PathExists(LatestOf(dir))) return "";
  InputFile file(LatestOf(dir));
  std::string text(std::min<uint64_t>(file.size(), 80), '\0');
  file.Read(text.data(), text.size(), 0);
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

// The checkpoint that `latest` names. Errors: its text is no checkpoint's name.
std::optional<CheckpointName> ReadLatest(const std::string& dir) {
  if (!PathExists(LatestOf(dir))) return std::nullopt;
  std::string text = LatestText(dir);
  auto name = ParseName(text);
  Check(name.has_value(), "[", LatestOf(dir),
        "] expected the name of a checkpoint, got \"", text, "\"");
  return name;
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

// Removes files of frozen weights that no checkpoint names. A checkpoint that
// can't be read may need any of them.
void RemoveUnusedFrozen(const std::string& dir, const FileHook& hook = {}) {
  std::vector<std::string> files = Entries(FolderOf(dir));
  std::erase_if(files,
                [](const auto& name) { return !IsFrozenFileName(name); });
  if (files.empty()) return;
  std::set<std::string> used;
  try {
    for (const CheckpointName& name : ListCheckpoints(dir)) {
      used.insert(NameOfFrozenFile(FolderOf(dir) + "/" + name.text));
    }
  } catch (const Error&) {
    return;
  }
  for (const std::string& name : files) {
    if (!used.contains(name)) RemoveTree(FolderOf(dir) + "/" + name, hook);
  }
}

// A name that no checkpoint has.
std::string FreshName(const std::string& dir, int64_t step) {
  char digits[32];
  std::snprintf(digits, sizeof digits, "%08lld", static_cast<long long>(step));
  std::string base = std::string(kStepPrefix) + digits;
  std::string name = base;
  for (int copy = 2; PathExists(FolderOf(dir) + "/" + name); ++copy) {
    name = base + "_" + std::to_string(copy);
  }
  return name;
}

// Keeps `name`, the keep - 1 checkpoints before it, and those that evidence
// needs.
void Prune(const std::string& dir, const std::string& name, int64_t keep,
           const FileHook& hook) {
  std::vector<CheckpointName> all = ListCheckpoints(dir);
  std::ranges::reverse(all);
  CheckpointName newest = *ParseName(name);
  int64_t kept = 1;
  const std::set<std::string> needed = CheckpointsOfEvidence(dir);
  for (const CheckpointName& old : all) {
    if (old.text == name || needed.contains(old.text)) continue;
    if (old.Key() < newest.Key() && kept < keep) {
      ++kept;
    } else {
      RemoveCheckpoint(FolderOf(dir) + "/" + old.text, hook);
    }
  }
}

// Runs `action` on all ranks and returns their results, in order; null: here
// alone. Errors, on all ranks: the first failed rank's.
std::vector<std::string> OnAll(Communicator* ranks,
                               const std::function<std::string()>& action) {
  if (!ranks) return {action()};
  std::string result, error;
  try {
    result = action();
  } catch (const std::exception& caught) {
    error = caught.what();
  }
  std::vector<std::string> errors = GatherTexts(*ranks, error);
  for (size_t rank = 0; rank < errors.size(); ++rank) {
    Check(errors[rank].empty(), "rank ", rank, ": ", errors[rank]);
  }
  return GatherTexts(*ranks, result);
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
  const int rank = options.ranks ? options.ranks->rank() : 0;
  const bool first = rank == 0;
  std::string name, temporary;
  try {
    // The first rank chooses the names.
    std::string chosen = OnAll(options.ranks, [&]() -> std::string {
      if (!first) return "";
      MakeDirectories(FolderOf(dir), hook);
      name = FreshName(dir, checkpoint.step);
      temporary = TemporaryName(FolderOf(dir) + "/" + name);
      RemoveTree(temporary);
      MakeNewDirectory(temporary, hook);
      return name + "\n" + fs::path(temporary).filename().string();
    })[0];
    name = chosen.substr(0, chosen.find('\n'));
    temporary = FolderOf(dir) + "/" + chosen.substr(name.size() + 1);
    const std::string folder = FolderOf(dir) + "/" + name;
    std::optional<FrozenFile> frozen;
    std::vector<std::string> entries = OnAll(options.ranks, [&] {
      if (first && !options.frozen.empty()) {
        frozen = KeepFrozenFile(
            FolderOf(dir), options.frozen,
            options.frozen_file ? *options.frozen_file : std::nullopt, hook);
      }
      return WriteStateFile(temporary, rank, state, options, hook);
    });
    OnAll(options.ranks, [&]() -> std::string {
      if (!first) return "";
      WriteManifest(temporary, checkpoint, entries,
                    frozen ? frozen->entry : std::string(), hook);
      SyncDirectory(temporary, hook);
      if (options.before_rename) options.before_rename();
      RenamePath(temporary, folder, hook);
      SyncDirectory(FolderOf(dir), hook);
      // This commits the checkpoint: until then `latest` names the one before.
      WriteFileAtomically(LatestOf(dir), name + "\n", hook);
      Prune(dir, name, options.keep, hook);
      RemoveUnusedFrozen(dir, hook);
      return "";
    });
    if (options.frozen_file) *options.frozen_file = frozen;
    return folder;
  } catch (...) {
    if (first && !temporary.empty()) {
      RemoveTree(temporary);
      if (LatestText(dir) != name) {
        RemoveCheckpoint(FolderOf(dir) + "/" + name);
      }
      RemoveUnusedFrozen(dir);
    }
    // Another folder may have taken the run's place: it stays as it was.
    std::error_code not_empty;
    if (first) fs::remove(FolderOf(dir), not_empty);
    throw;
  }
}

std::string NewestCheckpoint(const std::string& dir) {
  const auto latest = ReadLatest(dir);
  if (latest) return latest->text;
  const std::vector<CheckpointName> all = ListCheckpoints(dir);
  return all.empty() ? "" : all.back().text;
}

std::string CheckpointBefore(const std::string& dir, int64_t step) {
  std::string before;
  for (const CheckpointName& name : ListCheckpoints(dir)) {
    if (name.step < step) before = name.text;
  }
  return before;
}

std::optional<Checkpoint> LoadLatestCheckpoint(const std::string& dir,
                                               const std::string& model,
                                               const TensorsToRead& only) {
  if (HoldsCheckpointFiles(dir)) return LoadCheckpoint(dir, model, only);
  std::vector<CheckpointName> all = ListCheckpoints(dir);
  std::optional<CheckpointName> latest = ReadLatest(dir);
  if (!latest && !all.empty()) latest = all.back();
  if (!latest) return std::nullopt;
  try {
    return LoadCheckpoint(FolderOf(dir) + "/" + latest->text, model, only);
  } catch (const Error& error) {
    Fail(error.what(), WayOut(dir, latest->text));
  }
}

Checkpoint LoadCheckpoint(const std::string& folder, const std::string& model,
                          const TensorsToRead& only) {
  return ReadCheckpointFiles(folder, model, only);
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
    const bool ours =
        entry.starts_with(kStepPrefix) || entry.starts_with("frozen.");
    if (ours && IsTemporaryName(entry)) remove(FolderOf(dir) + "/" + entry);
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
  RemoveUnusedFrozen(dir);
  return removed;
}

bool HoldsRun(const std::string& dir) {
  return PathExists(LatestOf(dir)) || PathExists(dir + "/metrics.jsonl") ||
         !ListCheckpoints(dir).empty();
}

int64_t CountIn(const std::string& text, const std::string& note,
                const std::string& folder) {
  int64_t count = 0;
  const char* end = text.data() + text.size();
  Check(std::from_chars(text.data(), end, count).ptr == end && !text.empty() &&
            count >= 0,
        "[", folder, "] expected a count as the checkpoint's note ", note,
        ", got \"", text, "\"");
  return count;
}

}  // namespace onnx_fp8
