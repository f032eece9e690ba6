// SPDX-License-Identifier: Apache-2.0
#include "data/served_folder.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/copy_file.h"
#include "base/file.h"
#include "base/glob.h"
#include "base/input_file.h"
#include "base/joined.h"
#include "base/shallow_json.h"
#include "data/safetensors.h"

namespace onnx_fp8 {
namespace {

namespace files = std::filesystem;
using ServedJson = nlohmann::ordered_json;

constexpr int64_t kBlockSide = 128, kGroupSide = 32;
constexpr uint64_t kMaxLikeConfig = 16'000'000;
constexpr int kLikeConfigDepth = 64;
constexpr char kServedConfig[] = "config.json";
constexpr char kQuantization[] = "quantization_config";
constexpr std::string_view kWeightEnding = ".weight";

// Files that a served model needs beside its weights and config.json.
constexpr const char* kCopied[] = {
    "generation_config.json",
    "tokenizer*",
    "*.model",
    "*.tiktoken",
    "vocab.*",
    "merges.txt",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template*",
    "preprocessor_config.json",
    "processor_config.json",
    "*.py",
};

bool HasRaggedEdge(const ServedCodes& layer) {
  return std::ranges::any_of(
      layer.codes.shape(), [](int64_t side) { return side % kBlockSide != 0; });
}

std::set<CodeScales> KindsOf(const ServedTensors& served) {
  std::set<CodeScales> kinds;
  for (const auto& [module, layer] : served.layers) kinds.insert(layer.scales);
  return kinds;
}

// Layers of one group have one kind of scales, and all or none of them have a
// scale of their inputs.
using GroupKey = std::pair<CodeScales, bool>;

GroupKey GroupKeyOf(const ServedCodes& layer) {
  return {layer.scales, layer.input_scale.has_value()};
}

std::set<GroupKey> GroupKeysOf(const ServedTensors& served) {
  std::set<GroupKey> keys;
  for (const auto& [module, layer] : served.layers) {
    keys.insert(GroupKeyOf(layer));
  }
  return keys;
}

// Whether the layout is DeepSeek's, which needs no other package.
bool IsDeepSeek(const ServedTensors& served) {
  return KindsOf(served) == std::set{CodeScales::kBlocks} &&
         std::ranges::none_of(served.layers, [](const auto& layer) {
           return HasRaggedEdge(layer.second);
         });
}

// ---- config.json

// A format of compressed-tensors' config.
ServedJson NumbersIn(const char* strategy, bool dynamic) {
  return {{"num_bits", 8},         {"type", "float"},
          {"symmetric", true},     {"dynamic", dynamic},
          {"group_size", nullptr}, {"strategy", strategy}};
}

const char* FormatOf(CodeScales scales) {
  return scales == CodeScales::kGroups ? "mxfp8-quantized" : "float-quantized";
}

ServedJson GroupOf(const GroupKey& key, ServedJson targets) {
  const auto& [scales, knows_inputs] = key;
  ServedJson weights = NumbersIn("tensor", false);
  ServedJson inputs = NumbersIn("tensor", !knows_inputs);
  if (scales == CodeScales::kRows) {
    weights["strategy"] = "channel";
    if (!knows_inputs) inputs["strategy"] = "token";
  } else if (scales == CodeScales::kGroups) {
    for (ServedJson* numbers : {&weights, &inputs}) {
      (*numbers)["strategy"] = "group";
      (*numbers)["group_size"] = kGroupSide;
      (*numbers)["scale_dtype"] = "torch.uint8";
      (*numbers)["zp_dtype"] = "torch.uint8";
    }
  } else if (scales == CodeScales::kBlocks) {
    weights["strategy"] = "block";
    weights["block_structure"] = {kBlockSide, kBlockSide};
    inputs["strategy"] = "group";
    inputs["group_size"] = kBlockSide;
  }
  return {{"targets", std::move(targets)},
          {"format", FormatOf(scales)},
          {"weights", std::move(weights)},
          {"input_activations", std::move(inputs)},
          {"output_activations", nullptr}};
}

// The modules without codes. The package compressed-tensors expects a scale for
// every weight that could be a linear layer's by its name. So norms are listed.
ServedJson IgnoredBy(const ServedTensors& served) {
  ServedJson modules = ServedJson::array();
  for (const auto& [name, tensor] : served.tensors) {
    if (!name.ends_with(kWeightEnding)) continue;
    modules.push_back(name.substr(0, name.size() - kWeightEnding.size()));
  }
  return modules;
}

ServedJson CompressedTensorsConfig(const ServedTensors& served) {
  const std::set<GroupKey> keys = GroupKeysOf(served);
  ServedJson groups = ServedJson::object();
  std::set<std::string> formats;
  for (const GroupKey& key : keys) {
    ServedJson targets = ServedJson::array({"Linear"});
    if (keys.size() > 1) {
      targets = ServedJson::array();
      for (const auto& [module, layer] : served.layers) {
        if (GroupKeyOf(layer) == key) targets.push_back(module);
      }
    }
    formats.insert(FormatOf(key.first));
    groups[Concat("group_", groups.size())] = GroupOf(key, std::move(targets));
  }
  return {
      {"quant_method", "compressed-tensors"},
      {"format", formats.size() == 1 ? *formats.begin() : "mixed-precision"},
      {"quantization_status", "compressed"},
      {"config_groups", std::move(groups)},
      {"ignore", IgnoredBy(served)},
      {"kv_cache_scheme", nullptr},
      {"global_compression_ratio", nullptr}};
}

ServedJson QuantizationOf(const ServedTensors& served) {
  if (!IsDeepSeek(served)) return CompressedTensorsConfig(served);
  return {{"quant_method", "fp8"},
          {"fmt", "e4m3"},
          {"activation_scheme", "dynamic"},
          {"weight_block_size", {kBlockSide, kBlockSide}},
          {"modules_to_not_convert", served.whole}};
}

ServedJson ConfigLike(const std::string& like) {
  if (like.empty()) return ServedJson::object();
  const std::string path = (files::path(like) / kServedConfig).string();
  Check(PathExists(path), "[", like,
        "] expected a folder of Hugging Face with config.json, got ",
        IsFolder(like) ? "one without" : "no folder");
  const std::string text = ReadText(path, kMaxLikeConfig);
  const std::string expected =
      Concat("[", path, "] expected the configuration of a model as JSON");
  ServedJson config = ParseShallowJson<ServedJson>(text.data(), text.size(),
                                                   kLikeConfigDepth, expected);
  Check(config.is_object(), expected, ", an object");
  return config;
}

const char* TorchName(DType dtype) {
  return dtype == DType::kFloat ? "float32" : Name(dtype);
}

ServedJson ServedConfigOf(const ServedTensors& served,
                          const std::string& like) {
  ServedJson config = ConfigLike(like);
  // Releases before 5 of transformers know the second name alone.
  const bool is_new = config.contains("dtype");
  const bool is_old = config.contains("torch_dtype") || !is_new;
  if (is_new) config["dtype"] = TorchName(served.dtype);
  if (is_old) config["torch_dtype"] = TorchName(served.dtype);
  config.erase(kQuantization);
  if (!served.layers.empty()) config[kQuantization] = QuantizationOf(served);
  return config;
}

// ---- files

SourceMap TensorsOf(const ServedTensors& served) {
  SourceMap all = served.tensors;
  const char* scale =
      IsDeepSeek(served) ? ".weight_scale_inv" : ".weight_scale";
  for (const auto& [module, layer] : served.layers) {
    all.insert_or_assign(module + ".weight", layer.codes);
    all.insert_or_assign(module + scale, layer.scale);
    if (!layer.input_scale) continue;
    all.insert_or_assign(module + ".input_scale",
                         Tensor::From<float>({1}, {*layer.input_scale}));
  }
  return all;
}

// The tensors file by file, in the order of their names.
std::vector<SourceMap> ShardsOf(const SourceMap& tensors, size_t most) {
  std::vector<SourceMap> shards(1);
  size_t bytes = 0;
  for (const auto& [name, tensor] : tensors) {
    if (bytes > 0 && bytes + tensor.bytes() > most) {
      shards.emplace_back();
      bytes = 0;
    }
    shards.back().emplace(name, tensor);
    bytes += tensor.bytes();
  }
  return shards;
}

std::string ShardFile(size_t shard, size_t shards) {
  char name[64];
  std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors",
                shard + 1, shards);
  return shards == 1 ? "model.safetensors" : name;
}

void WriteShards(const std::string& folder, const SourceMap& tensors,
                 size_t most) {
  const std::vector<SourceMap> shards = ShardsOf(tensors, most);
  size_t bytes = 0;
  ServedJson map = ServedJson::object();
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string name = ShardFile(i, shards.size());
    for (const auto& [key, tensor] : shards[i]) {
      map[key] = name;
      bytes += tensor.bytes();
    }
    WriteSafetensorsByName((files::path(folder) / name).string(), shards[i],
                           {{"format", "pt"}});
  }
  if (shards.size() == 1) return;
  const ServedJson index = {{"metadata", {{"total_size", bytes}}},
                            {"weight_map", std::move(map)}};
  WriteFileAtomically(
      (files::path(folder) / "model.safetensors.index.json").string(),
      index.dump(2) + "\n");
}

// Copies the files beside the weights. Returns their names.
std::vector<std::string> CopyOthers(const std::string& like,
                                    const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : files::directory_iterator(like)) {
    const std::string name = entry.path().filename().string();
    const bool wanted = std::ranges::any_of(
        kCopied, [&](const char* glob) { return MatchesGlob(glob, name); });
    if (!wanted || !IsRegularFile(entry.path().string())) continue;
    names.push_back(name);
  }
  std::ranges::sort(names);
  for (const std::string& name : names) {
    CopyFileAtomically(InputFile((files::path(like) / name).string()),
                       (files::path(folder) / name).string());
  }
  return names;
}

// transformers compares the ends of names with modules_to_not_convert.
std::string SkippedByName(const ServedTensors& served) {
  if (!IsDeepSeek(served)) return "";
  for (const auto& [module, layer] : served.layers) {
    for (const std::string& whole : served.whole) {
      if (!module.ends_with(whole) && !module.starts_with(whole + ".")) {
        continue;
      }
      return Concat("transformers takes ", module,
                    " for a layer without scales, because its name begins or "
                    "ends like ",
                    whole, ", which is in modules_to_not_convert");
    }
  }
  return "";
}

std::string LayoutRemark(const ServedTensors& served) {
  if (served.layers.empty()) return "";
  const size_t layers = served.layers.size();
  std::string text = Concat(layers, layers == 1 ? " layer" : " layers",
                            " in FP8 in the layout ");
  if (IsDeepSeek(served)) {
    return text +
           "of DeepSeek (quant_method fp8), which transformers and vLLM "
           "read";
  }
  text +=
      "of compressed-tensors, which vLLM reads, and transformers with the "
      "package of that name";
  const std::set<CodeScales> kinds = KindsOf(served);
  const bool ragged = std::ranges::any_of(served.layers, [](const auto& layer) {
    return layer.second.scales == CodeScales::kBlocks &&
           HasRaggedEdge(layer.second);
  });
  if (ragged) {
    text +=
        "; transformers decodes blocks at edges that are no multiple of "
        "128 wrongly in the other layout";
  }
  if (kinds.size() > 1) {
    text +=
        "; transformers can't load it, because it decodes all layers like "
        "one of them, and these have several kinds of scales";
  }
  const auto known = std::ranges::count_if(served.layers, [](const auto& row) {
    return row.second.input_scale.has_value();
  });
  if (known > 0) {
    text += Concat("; ", known, " of them ", known == 1 ? "has" : "have",
                   " the run's kept scale of inputs (input_scale), so servers "
                   "measure none");
  }
  if (kinds.contains(CodeScales::kTensor)) {
    text +=
        "; vLLM quantizes layers that it joins (q, k and v) anew, by the "
        "largest of their scales";
  }
  return text;
}

void RequireNew(const std::string& folder) {
  const bool free =
      !PathExists(folder) || (IsFolder(folder) && files::is_empty(folder));
  Check(free, "[", folder,
        "] expected the name of a new folder, or an empty one, got ",
        IsFolder(folder) ? "a folder with files" : "a file");
}

}  // namespace

std::vector<std::string> WriteServedFolder(const std::string& folder,
                                           const std::string& like,
                                           const ServedTensors& served,
                                           size_t shard_bytes) {
  RequireNew(folder);
  const ServedJson config = ServedConfigOf(served, like);
  const files::path target = files::absolute(folder).lexically_normal();
  const std::string whole =
      (target.has_filename() ? target : target.parent_path()).string();
  MakeDirectories(files::path(whole).parent_path().string());
  const std::string part = TemporaryName(whole);
  RemoveTree(part);
  MakeNewDirectory(part);
  std::vector<std::string> copied;
  try {
    WriteShards(part, TensorsOf(served), shard_bytes);
    WriteFileAtomically((files::path(part) / kServedConfig).string(),
                        config.dump(2) + "\n");
    if (!like.empty()) copied = CopyOthers(like, part);
    SyncDirectory(part);
    RenamePath(part, whole);
  } catch (...) {
    RemoveTree(part);
    throw;
  }
  SyncDirectory(files::path(whole).parent_path().string());
  std::vector<std::string> remarks = {LayoutRemark(served),
                                      SkippedByName(served)};
  if (like.empty()) {
    remarks.push_back(
        "config.json says how the weights are stored and nothing of the model: "
        "an export like a folder of the model takes over its configuration and "
        "tokenizer");
  } else {
    remarks.push_back(
        Concat("config.json of ", like, " with another dtype",
               served.layers.empty() ? "" : " and quantization_config",
               copied.empty() ? "" : ", and copies of " + Joined(copied)));
  }
  std::erase(remarks, "");
  return remarks;
}

}  // namespace onnx_fp8
