// SPDX-License-Identifier: Apache-2.0
#include "data/weight_files.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "base/check.h"
#include "base/file.h"
#include "base/input_file.h"
#include "base/shallow_json.h"
#include "data/safetensors.h"
#include "data/shard_name.h"

namespace onnx_fp8 {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr char kSingleFile[] = "model.safetensors";
constexpr std::string_view kIndexSuffix = ".index.json";
constexpr char kWeightMap[] = "weight_map";
constexpr uint64_t kMaxIndex = 100'000'000;  // as a header of safetensors
constexpr int kIndexDepth = 8;               // `metadata` may hold anything

// By tensor: the name of its shard. Errors: no such index, a tensor twice.
Json ReadWeightMap(const std::string& path) {
  const std::string text = ReadText(path, kMaxIndex);
  std::string object;
  std::set<std::string> names;
  const auto refuse_twice = [&](int depth, const std::string& key) {
    if (depth == 1) object = key;
    if (depth != 2 || object != kWeightMap) return;
    Check(names.insert(key).second, "[", path,
          "] expected every tensor once, got \"", key, "\" twice");
  };
  const std::string expected =
      Concat("[", path, "] expected a JSON object with an object ", kWeightMap);
  Json index = ParseShallowJson(text.data(), text.size(), kIndexDepth, expected,
                                refuse_twice);
  Check(index.is_object() && index.contains(kWeightMap) &&
            index[kWeightMap].is_object(),
        expected);
  return std::move(index[kWeightMap]);
}

void AddFile(const std::string& path, WeightFiles* all) {
  for (auto& [name, tensor] : ReadSafetensors(path)) {
    const auto [at, added] = all->files.emplace(name, path);
    Check(added, "[", path, "] expected every tensor in one shard, got \"",
          name, "\", which ", at->second, " holds too");
    all->tensors.emplace(name, tensor);
  }
}

WeightFiles ReadShards(const std::string& index) {
  const fs::path folder = fs::path(index).parent_path();
  WeightFiles all = {.folder = folder.string()};
  std::map<std::string, std::string> expected;  // by tensor: the path
  std::set<std::string> paths;
  const Json map = ReadWeightMap(index);
  for (const auto& [name, value] : map.items()) {
    const std::string path = (folder / ShardName(value, index)).string();
    expected[name] = path;
    paths.insert(path);
  }
  for (const std::string& path : paths) {
    Check(PathExists(path), "[", index, "] names the shard ", path,
          ", which does not exist");
    AddFile(path, &all);
  }
  for (const auto& [name, path] : expected) {
    const auto held = all.files.find(name);
    Check(held != all.files.end() && held->second == path, "[", path,
          "] expected tensor \"", name, "\", which ", index,
          " says is there, got none");
  }
  return all;
}

// What a folder has in place of safetensors, for an error.
std::string PicklesIn(const fs::path& folder) {
  for (const char* name :
       {"pytorch_model.bin", "pytorch_model.bin.index.json"}) {
    if (!PathExists((folder / name).string())) continue;
    return Concat(", but ", name,
                  ": pickles of PyTorch are not read (save_pretrained of "
                  "transformers writes safetensors)");
  }
  return "";
}

}  // namespace

WeightFiles ReadWeightFiles(const std::string& path) {
  const auto single = [](const std::string& file) {
    WeightFiles all = {.folder = fs::path(file).parent_path().string()};
    AddFile(file, &all);
    return all;
  };
  if (!IsFolder(path)) {
    return path.ends_with(kIndexSuffix) ? ReadShards(path) : single(path);
  }
  const std::string file = (fs::path(path) / kSingleFile).string();
  const std::string index = Concat(file, kIndexSuffix);
  if (PathExists(file)) {
    WeightFiles all = single(file);
    if (PathExists(index)) {
      all.remark = Concat("[", path, "] has ", kSingleFile, " and ",
                          kSingleFile, kIndexSuffix, ": the first is read");
    }
    return all;
  }
  Check(PathExists(index), "[", path, "] expected a folder with ", kSingleFile,
        " or ", kSingleFile, kIndexSuffix, ", got neither", PicklesIn(path));
  return ReadShards(index);
}

}  // namespace onnx_fp8
