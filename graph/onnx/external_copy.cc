// SPDX-License-Identifier: Apache-2.0
#include "onnx_fp8/external_copy.h"

#include <filesystem>
#include <map>
#include <set>
#include <vector>

#include "base/check.h"
#include "base/copy_file.h"
#include "base/file.h"
#include "graph/onnx/model_file_internal.h"

namespace onnx_fp8 {
namespace {

namespace fs = std::filesystem;

void AddLocation(const onnx::TensorProto& tensor,
                 std::set<std::string>* locations) {
  if (tensor.data_location() != onnx::TensorProto::EXTERNAL) return;
  for (const auto& entry : tensor.external_data()) {
    if (entry.key() == "location") locations->insert(entry.value());
  }
}

void CollectFromGraph(const onnx::GraphProto& graph,
                      std::set<std::string>* locations);

template <typename Nodes>
void CollectFromNodes(const Nodes& nodes, std::set<std::string>* locations) {
  for (const onnx::NodeProto& node : nodes) {
    for (const auto& attribute : node.attribute()) {
      if (attribute.has_t()) AddLocation(attribute.t(), locations);
      for (const auto& tensor : attribute.tensors()) {
        AddLocation(tensor, locations);
      }
      if (attribute.has_g()) CollectFromGraph(attribute.g(), locations);
      for (const auto& graph : attribute.graphs()) {
        CollectFromGraph(graph, locations);
      }
    }
  }
}

void CollectFromGraph(const onnx::GraphProto& graph,
                      std::set<std::string>* locations) {
  for (const auto& tensor : graph.initializer()) AddLocation(tensor, locations);
  CollectFromNodes(graph.node(), locations);
}

struct Task {
  std::string to, location;
  uint64_t size;
};

// Refuses a place behind a link: the copy could not be loaded from there, and
// it would land in another folder.
void CheckPlain(const fs::path& folder, const fs::path& location) {
  fs::path path = folder;
  for (const fs::path& part : location) {
    path /= part;
    std::error_code none;
    Check(!fs::is_symlink(fs::symlink_status(path, none)), "[", path.string(),
          "] is a link, and loaders refuse external data behind links: write "
          "to another folder");
  }
}

class Copier {
 public:
  Copier(const ModelFile& file, const std::string& out,
         const ExternalCopyObserver& observer)
      : file_(file),
        out_(fs::absolute(out)),
        to_(out_.parent_path()),
        observer_(observer) {}

  void Run(const std::set<std::string>& locations) {
    for (const std::string& location : locations) Add(location);
    // Nothing is written before it is certain that nothing is replaced.
    for (const auto& [to, task] : present_) Compare(task);
    for (const auto& [to, task] : absent_) Copy(task);
  }

 private:
  void Add(const std::string& location) {
    uint64_t size = Open(location)->size();
    fs::path name = fs::path(location).lexically_normal();
    fs::path from = fs::absolute(file_.path).parent_path() / name;
    std::string to = (to_ / name).lexically_normal().string();
    CheckPlain(to_, name);
    CheckApart(to, location);
    std::error_code none;
    if (fs::equivalent(from, to, none)) return;
    CheckDataName(to, name.string());
    auto& tasks = PathExists(to) ? present_ : absent_;
    if (tasks.emplace(to, Task{to, location, size}).second) total_ += size;
  }

  std::unique_ptr<InputFile> Open(const std::string& location) const {
    return file_.external->Open(location, file_.path);
  }

  // The model written to `out` must not replace its own data.
  void CheckApart(const fs::path& data, const std::string& location) const {
    std::error_code none;
    Check(data.lexically_normal() != out_.lexically_normal() &&
              !fs::equivalent(data, out_, none),
          "[", out_.string(), "] is the place of the model's external data \"",
          location, "\": write to another file");
  }

  // The model chose this name, and must not replace files that are not its own.
  [[noreturn]] static void Refuse(const Task& task) {
    Fail("[", task.to, "] would be replaced by the model's external data \"",
         task.location, "\": write to another folder");
  }

  ByteProgress Begin(const Task& task) {
    bool there = present_.contains(task.to);
    auto report = [this, to = task.to, there](uint64_t done) {
      if (observer_) observer_({to, there, done_ + done, total_});
    };
    report(0);
    return report;
  }

  void Compare(const Task& task) {
    bool same =
        IsRegularFile(task.to) && InputFile(task.to).size() == task.size &&
        SameContent(*Open(task.location), InputFile(task.to), Begin(task));
    if (!same) Refuse(task);
    done_ += task.size;
  }

  void Copy(const Task& task) {
    MakeDirectories(fs::path(task.to).parent_path().string());
    CopyFileAtomically(*Open(task.location), task.to, Begin(task));
    done_ += task.size;
  }

  const ModelFile& file_;
  fs::path out_, to_;  // the model, its folder
  const ExternalCopyObserver& observer_;
  std::map<std::string, Task> present_, absent_;  // by the place of the copy
  uint64_t done_ = 0, total_ = 0;
};

}  // namespace

std::set<std::string> DataLocations(const onnx::ModelProto& model) {
  std::set<std::string> locations;
  CollectFromGraph(model.graph(), &locations);
  for (const auto& info : model.training_info()) {
    CollectFromGraph(info.initialization(), &locations);
    CollectFromGraph(info.algorithm(), &locations);
  }
  for (const auto& function : model.functions()) {
    CollectFromNodes(function.node(), &locations);
  }
  return locations;
}

void CheckDataName(const std::string& path, const std::string& name) {
  for (const fs::path& part : fs::path(name)) {
    Check(!part.string().starts_with('.'), "[", path,
          "] would be a hidden file, or in a hidden folder: external data are "
          "written under names without a dot at their beginning only; give "
          "them another name");
  }
}

void CopyExternalData(const ModelFile& file,
                      const std::set<std::string>& locations,
                      const std::string& out,
                      const ExternalCopyObserver& observer) {
  Copier(file, out, observer).Run(locations);
}

}  // namespace onnx_fp8
