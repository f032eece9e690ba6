// SPDX-License-Identifier: Apache-2.0
#include "cli/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "graph/rewrite_model.h"
#include "onnx_fp8/check.h"
#include "onnx_fp8/file.h"
#include "onnx_fp8/mapped_file.h"
#include "onnx_fp8/shallow_json.h"

namespace onnx_fp8 {
namespace {

namespace fs = std::filesystem;

// Runs of format 1 did not tie weights.
constexpr int kFormat = 2;

// Of this run only: where it is and how it was started.
bool Travels(const std::string& flag) {
  return flag != "MODEL" && flag != "--out" && flag != "--resume" &&
         flag != "--json" && flag != "--memory-report" &&
         flag != "--profile-summary";
}

// Without the library's number of the error.
std::string ReasonOf(const nlohmann::json::exception& error) {
  std::string text = error.what();
  size_t end = text.find("] ");
  return end == std::string::npos ? text : text.substr(end + 2);
}

}  // namespace

std::string FileCrc(const std::string& path) {
  MappedFile file = MapFile(path);
  return Hex(Crc32(file.data, file.size));
}

bool RunFolder::HasConfig() const {
  return fs::is_regular_file(path_ + "/config.json");
}

bool RunFolder::HasCheckpoint() const {
  if (fs::exists(path_ + "/latest")) return true;
  std::error_code none;
  fs::directory_iterator entries(path_ + "/checkpoints", none);
  for (; !none && entries != fs::directory_iterator(); ++entries) {
    if (!IsTemporaryName(entries->path().filename().string())) return true;
  }
  return false;
}

RunConfig RunFolder::Load() const {
  std::string file = path_ + "/config.json";
  Check(HasConfig(), "[", path_, "] is no folder of a training run: expected ",
        file);
  const std::string refused = "[" + file + "] expected a run's configuration";
  MappedFile bytes = MapFile(file);
  // The file, its flags, the words of one, a word.
  auto json = ParseShallowJson(reinterpret_cast<const char*>(bytes.data),
                               bytes.size, 3, refused);
  Check(json.is_object(), refused, ", got something else");
  RunConfig config;
  try {
    int format = json.at("format").get<int>();
    Check(format == 1 || format == kFormat, refused, " of format 1 or ",
          kFormat, ", got ", format);
    config.file = file;
    fs::path model = json.at("model").at("file").get<std::string>();
    bool inside = model.is_relative() &&
                  model.lexically_normal().string().substr(0, 2) != "..";
    Check(inside, refused, " with a model inside the run's folder, got \"",
          model.string(), "\"");
    config.model = (fs::path(path_) / model).string();
    config.crc = json.at("model").at("crc32").get<std::string>();
    config.flags = json.at("flags").get<FlagMap>();
    if (format == 1) config.flags["--no-tie"] = {};
  } catch (const nlohmann::json::exception& error) {
    Fail(refused, ", got ", ReasonOf(error));
  }
  Check(FileCrc(config.model) == config.crc, "[", config.model,
        "] is not the file that the run was started with");
  return config;
}

void RunFolder::Lock() {
  MakeDirectories(path_);
  int fd = open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  Check(fd >= 0, "[", path_, "] can't be opened as a folder");
  lock_ = std::shared_ptr<void>(nullptr, [fd](void*) { close(fd); });
  Check(flock(fd, LOCK_EX | LOCK_NB) == 0, "[", path_,
        "] another process trains in this folder");
  for (const auto& entry : fs::directory_iterator(path_)) {
    std::string name = entry.path().filename().string();
    bool left = name.starts_with("config.json.") && IsTemporaryName(name);
    if (left) RemoveTree(entry.path().string());
  }
}

void RunFolder::Write(const std::string& model, const FlagMap& flags,
                      const ExternalCopyObserver& observer) {
  fs::path copy = fs::path("model") / fs::path(model).filename();
  std::string to = (fs::path(path_) / copy).string();
  std::error_code none;
  if (!fs::equivalent(model, to, none)) {
    MakeDirectories(path_ + "/model");
    // The session has read it within its budgets.
    RewriteModel(model, to, Fp8Spec{}, {}, observer, {}, {.nodes = INT64_MAX});
  }
  nlohmann::ordered_json json = {
      {"format", kFormat},
      {"program", "onnx-fp8 " ONNX_FP8_VERSION},
      {"model", {{"file", copy.string()}, {"crc32", FileCrc(to)}}},
      {"flags", nlohmann::ordered_json::object()},
  };
  for (const auto& [flag, words] : flags) {
    if (Travels(flag)) json["flags"][flag] = words;
  }
  WriteFileAtomically(path_ + "/config.json", json.dump(2) + "\n");
}

}  // namespace onnx_fp8
