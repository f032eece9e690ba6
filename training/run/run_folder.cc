// SPDX-License-Identifier: Apache-2.0
#include "onnx_fp8/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/file.h"
#include "base/input_file.h"
#include "base/mapped_file.h"
#include "base/printable.h"
#include "base/shallow_json.h"
#include "graph/rewrite/rewrite_model.h"
#include "training/state/checkpoint.h"
#include "training/state/frozen_file.h"

namespace onnx_fp8 {
namespace {

namespace fs = std::filesystem;

constexpr int kRunFormat = 2;

// KeptModels' names. Each model lies in a folder of its name.
constexpr const char* kOthers[] = {"loss", "optimizer"};

const char* NameOf(fs::file_type type) {
  return type == fs::file_type::symlink     ? "a link"
         : type == fs::file_type::directory ? "a folder"
         : type == fs::file_type::regular   ? "a file"
                                            : "a device or pipe";
}

// Covers the settings and the other facts, but not the checksum itself. Flags
// need not be UTF-8.
std::string ConfigChecksum(nlohmann::json json) {
  json.erase("crc32");
  const std::string text =
      json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return Hex(Crc32(text.data(), text.size()));
}

// Errors: a word that config.json can't hold. JSON is UTF-8; names of files
// need not be.
void RequireUtf8(const std::string& folder, const std::string& model,
                 const KeptModels& others, const RunSettings& settings) {
  auto require = [&](const std::string& of, const std::string& word) {
    Check(IsUtf8(word), "[", folder, "/config.json] can't hold ", of, " \"",
          word, "\": expected UTF-8, got other bytes; use another name");
  };
  require("the model", fs::path(model).filename().string());
  for (const auto& [option, file] : others) {
    require("`" + option + "`", fs::path(file).filename().string());
  }
  for (const auto& [flag, words] : settings) {
    for (const std::string& word : words) require(flag, word);
  }
}

// Without nlohmann's number of the error.
std::string ReasonOf(const nlohmann::json::exception& error) {
  std::string text = error.what();
  size_t end = text.find("] ");
  return end == std::string::npos ? text : text.substr(end + 2);
}

}  // namespace

std::string BestFolder(const std::string& folder) { return folder + "/best"; }

std::string FileCrc(const std::string& path) {
  constexpr uint64_t kPiece = uint64_t{1} << 20;
  const InputFile file(path);
  std::string piece(std::min(file.size(), kPiece), '\0');
  uint32_t crc = 0;
  for (uint64_t done = 0; done < file.size(); done += piece.size()) {
    piece.resize(std::min(file.size() - done, kPiece));
    file.Read(piece.data(), piece.size(), done);
    crc = CombineCrc32(crc, Crc32(piece.data(), piece.size()), piece.size());
  }
  return Hex(crc);
}

std::string FileMark(const std::string& path) {
  constexpr uint64_t kEnd = uint64_t{64} << 10;
  try {
    const InputFile file(path);
    const uint64_t head = std::min(file.size(), kEnd);
    const uint64_t tail = std::min(file.size() - head, kEnd);
    std::string ends(head + tail, '\0');
    file.Read(ends.data(), head, 0);
    file.Read(ends.data() + head, tail, file.size() - tail);
    return Concat(file.size(), " ", Hex(Crc32(ends.data(), ends.size())));
  } catch (const Error&) {
    return "";
  }
}

bool RunFolder::HasConfig() const {
  return IsRegularFile(path_ + "/config.json");
}

bool RunFolder::HasCheckpoint() const {
  if (PathExists(path_ + "/latest")) return true;
  std::error_code none;
  fs::directory_iterator entries(path_ + "/checkpoints", none);
  for (; !none && entries != fs::directory_iterator(); ++entries) {
    const std::string name = entries->path().filename().string();
    // A killed save may have left the file of its checkpoint.
    if (!IsTemporaryName(name) && !IsFrozenFileName(name)) return true;
  }
  return false;
}

bool RunFolder::HoldsRun() const { return onnx_fp8::HoldsRun(path_); }

void RunFolder::Clean() {
  CleanLeftovers(path_);
  CleanLeftovers(BestFolder(path_));
}

// A place behind a link is no part of the run: no folder may decide that we
// write there, or remove old checkpoints there.
void RunFolder::CheckPlain() const {
  constexpr auto kFile = fs::file_type::regular;
  constexpr auto kFolder = fs::file_type::directory;
  const std::pair<const char*, fs::file_type> kept[] = {
      {"config.json", kFile},      {"metrics.jsonl", kFile},
      {"latest", kFile},           {"model", kFolder},
      {"checkpoints", kFolder},    {"best", kFolder},
      {"best/latest", kFile},      {"best/checkpoints", kFolder},
      {"loss", kFolder},           {"optimizer", kFolder},
      {"statistics.jsonl", kFile}, {"evidence.json", kFile},
      {"dumps", kFolder},
  };
  for (const auto& [name, expected] : kept) {
    std::string path = path_ + "/" + name;
    std::error_code none;
    fs::file_type type = fs::symlink_status(path, none).type();
    bool there =
        type != fs::file_type::not_found && type != fs::file_type::none;
    Check(!there || type == expected, "[", path, "] expected ",
          NameOf(expected), " of the run, got ", NameOf(type),
          ": put what it leads to in its place (cp -rL), or take it away");
  }
}

RunConfig RunFolder::Load() const {
  CheckPlain();
  std::string file = path_ + "/config.json";
  Check(HasConfig(), "[", path_, "] is no folder of a training run: expected ",
        file);
  const std::string refused = "[" + file + "] expected a run's configuration";
  MappedFile bytes = MapFile(file);
  // Depth 4: the file, its settings, the words of one setting, a word.
  auto json = ParseShallowJson(reinterpret_cast<const char*>(bytes.data),
                               bytes.size, 3, refused);
  Check(json.is_object(), refused, ", got something else");
  RunConfig config;
  std::map<std::string, std::string> crcs;  // by the path
  try {
    const int format = json.at("format").get<int>();
    Check(format == kRunFormat, refused, " of format ", kRunFormat, ", got ",
          format);
    config.file = file;
    auto copy = [&](const char* kind) {
      fs::path file = json.at(kind).at("file").get<std::string>();
      bool inside = file.is_relative() &&
                    file.lexically_normal().string().substr(0, 2) != "..";
      Check(inside, refused, " with a ", kind,
            " inside the run's folder, got \"", file.string(), "\"");
      return (fs::path(path_) / file).string();
    };
    config.model = copy("model");
    config.crc = json.at("model").at("crc32").get<std::string>();
    for (const char* kind : kOthers) {
      if (!json.contains(kind)) continue;
      const std::string path = config.others[kind] = copy(kind);
      crcs[path] = json.at(kind).at("crc32").get<std::string>();
    }
    config.settings = json.at("flags").get<RunSettings>();
    if (json.contains("files")) config.files = json["files"].get<FileMarks>();
    Check(
        !json.contains("crc32") || json["crc32"] == ConfigChecksum(json), "[",
        file,
        "] has changed since it was written: flags beside `resume` replace "
        "those of the run; to keep the change, remove \"crc32\" from the file");
  } catch (const nlohmann::json::exception& error) {
    Fail(refused, ", got ", ReasonOf(error));
  }
  auto require = [](const std::string& copied, const std::string& crc) {
    Check(FileCrc(copied) == crc, "[", copied,
          "] is not the file that the run was started with");
  };
  require(config.model, config.crc);
  for (const auto& [path, crc] : crcs) require(path, crc);
  return config;
}

void RunFolder::Lock() {
  made_ = !PathExists(path_);
  MakeDirectories(path_);
  LockAs(LOCK_EX);
  CheckPlain();
  for (const auto& entry : fs::directory_iterator(path_)) {
    std::string name = entry.path().filename().string();
    bool left = name.starts_with("config.json.") && IsTemporaryName(name);
    if (left) RemoveTree(entry.path().string());
  }
}

void RunFolder::Share() { LockAs(LOCK_SH); }

void RunFolder::LockAs(int operation) {
  if (!lock_) {
    const int fd = open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    Check(fd >= 0, "[", path_, "] can't be opened as a folder");
    fd_ = fd;
    lock_ = std::shared_ptr<void>(nullptr, [fd](void*) { close(fd); });
  }
  Check(flock(fd_, operation | LOCK_NB) == 0, "[", path_,
        "] another process trains in this folder");
}

std::string RunFolder::Copy(const std::string& file, const char* name,
                            const ExternalCopyObserver& observer,
                            bool may_miss) const {
  const std::string folder = path_ + "/" + name;
  const std::string to =
      (fs::path(folder) / fs::path(file).filename()).string();
  std::error_code none;
  if (fs::equivalent(file, to, none)) return to;
  bool made = !PathExists(folder);
  MakeDirectories(folder);
  try {
    CopyTrainable(file, to, observer, may_miss);
  } catch (...) {
    if (made) RemoveTree(folder);
    throw;
  }
  return to;
}

void RunFolder::Write(const std::string& model, const RunSettings& settings,
                      const ExternalCopyObserver& observer,
                      const FileMarks& files, const KeptModels& others,
                      bool may_miss) {
  try {
    WriteAll(model, settings, observer, files, others, may_miss);
  } catch (...) {
    std::error_code none;
    if (made_) fs::remove(path_, none);  // if it is empty
    throw;
  }
}

void RunFolder::WriteAll(const std::string& model, const RunSettings& settings,
                         const ExternalCopyObserver& observer,
                         const FileMarks& files, const KeptModels& others,
                         bool may_miss) {
  RequireUtf8(path_, model, others, settings);
  auto entry = [&](const std::string& file, const char* name) {
    std::string copy = Copy(file, name, observer, may_miss);
    return nlohmann::ordered_json{
        {"file", fs::path(copy).lexically_relative(path_).string()},
        {"crc32", FileCrc(copy)}};
  };
  nlohmann::ordered_json json = {
      {"format", kRunFormat},
      {"program", "onnx-fp8 " ONNX_FP8_VERSION},
      {"model", entry(model, "model")},
  };
  for (const auto& [name, file] : others) {
    json[name] = entry(file, name.c_str());
  }
  json["flags"] = nlohmann::ordered_json::object();
  for (const auto& [name, words] : settings) json["flags"][name] = words;
  if (!files.empty()) json["files"] = files;
  json["crc32"] = ConfigChecksum(json);
  WriteFileAtomically(path_ + "/config.json", json.dump(2) + "\n");
}

}  // namespace onnx_fp8
