// SPDX-License-Identifier: Apache-2.0
#include "data/adapter_folder.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "base/check.h"
#include "base/file.h"
#include "base/input_file.h"
#include "base/shallow_json.h"
#include "data/safetensors.h"

namespace onnx_fp8 {
namespace {

using AdapterJson = nlohmann::ordered_json;

constexpr char kConfig[] = "/adapter_config.json";
constexpr char kTensors[] = "/adapter_model.safetensors";
constexpr std::string_view kPrefix = "base_model.model.";
constexpr std::string_view kParts[] = {".lora_A.weight", ".lora_B.weight"};
constexpr uint64_t kMaxAdapterConfig = 16'000'000;
constexpr int kAdapterConfigDepth = 8;

// Settings that do not change the formula of a finished adapter, or that follow
// from the tensors.
constexpr const char* kIgnored[] = {
    "auto_mapping",        "base_model_name_or_path",
    "exclude_modules",     "fan_in_fan_out",
    "inference_mode",      "layers_pattern",
    "layers_to_transform", "megatron_core",
    "modules_to_save",     "peft_version",
    "qalora_group_size",   "revision",
    "runtime_config",      "target_modules",
    "task_type",           "loftq_config",
    "eva_config",          "ensure_weight_tying",
};

// Values of init_lora_weights that do not change the weights of the layers.
constexpr const char* kInits[] = {"gaussian", "orthogonal", "eva"};

bool IsOff(const AdapterJson& value) {
  return value.is_null() || value == false || value == "none" ||
         ((value.is_object() || value.is_array()) && value.empty());
}

// The beginning of the value's text, for messages.
std::string Shown(const AdapterJson& value) {
  return value.dump(-1, ' ', true).substr(0, 100);
}

class ConfigReader {
 public:
  explicit ConfigReader(const std::string& path) : path_(path) {
    const std::string text = ReadText(path, kMaxAdapterConfig);
    const std::string expected =
        Concat("[", path, "] expected the config of an adapter");
    json_ = ParseShallowJson<AdapterJson>(text.data(), text.size(),
                                          kAdapterConfigDepth, expected);
    Check(json_.is_object(), expected, ", a JSON object");
  }

  LoraSpec Read() {
    const AdapterJson type = Take("peft_type");
    Check(type == "LORA", "[", path_, "] expected peft_type LORA, got ",
          Shown(type));
    LoraSpec spec;
    spec.rank = Rank(Take("r"));
    spec.alpha = Number("lora_alpha", 8);
    spec.dropout = Number("lora_dropout", 0);
    const AdapterJson rslora = Take("use_rslora");
    Check(rslora.is_null() || rslora.is_boolean(), "[", path_,
          "] expected true or false as use_rslora, got ", Shown(rslora));
    spec.rslora = rslora == true;
    CheckInit(Take("init_lora_weights"));
    for (const char* key : kIgnored) json_.erase(key);
    for (const auto& [key, value] : json_.items()) {
      Check(IsOff(value), "[", path_, "] sets ", key,
            ", which this program does not have, to ", Shown(value));
    }
    return spec;
  }

 private:
  // Removes the entry and returns it; null: there is none.
  AdapterJson Take(const char* key) {
    const auto at = json_.find(key);
    if (at == json_.end()) return nullptr;
    AdapterJson value = *at;
    json_.erase(key);
    return value;
  }

  int64_t Rank(const AdapterJson& value) const {
    const bool fits =
        value.is_number_integer() && value > 0 && value <= kMaxLoraRank;
    Check(fits, "[", path_, "] expected r from 1 to ", kMaxLoraRank, ", got ",
          Shown(value));
    return value.get<int64_t>();
  }

  double Number(const char* key, double otherwise) {
    const AdapterJson value = Take(key);
    if (value.is_null()) return otherwise;
    Check(value.is_number() && std::isfinite(value.get<double>()) && value >= 0,
          "[", path_, "] expected a number of at least 0 as ", key, ", got ",
          Shown(value));
    return value.get<double>();
  }

  void CheckInit(const AdapterJson& value) const {
    const bool plain =
        value.is_null() || value.is_boolean() ||
        std::ranges::any_of(kInits, [&](const char* i) { return value == i; });
    Check(plain, "[", path_,
          "] expected init_lora_weights that leave the layers' weights as "
          "they are, got ",
          Shown(value), ": PEFT converts such an adapter when it saves it");
  }

  const std::string path_;
  AdapterJson json_;
};

// "MODULE" of "MODULE.lora_A.weight"; "": another name.
std::string ModuleOfPart(std::string_view name) {
  for (const std::string_view part : kParts) {
    if (name.ends_with(part) && name.size() > part.size()) {
      return std::string(name.substr(0, name.size() - part.size()));
    }
  }
  return "";
}

void CheckPair(const AdapterFolder& read, const std::string& module) {
  for (const std::string_view part : kParts) {
    const std::string name = module + std::string(part);
    const auto held = read.adapters.find(name);
    Check(held != read.adapters.end(), "[", read.file, "] expected ", kPrefix,
          name, " beside its counterpart, got none");
    const Shape& shape = held->second.shape();
    const size_t axis = part == kParts[0] ? 0 : 1;
    const bool fits = shape.size() == 2 && shape[axis] == read.spec.rank;
    Check(fits && IsFloat(held->second.dtype()), "[", read.file, "] expected ",
          kPrefix, name, " as a matrix of floats with ", read.spec.rank,
          axis == 0 ? " rows, got " : " columns, got ",
          Name(held->second.dtype()), ToString(shape));
  }
}

AdapterJson ConfigOf(const LoraSpec& spec, const AdapterLayers& layers) {
  const auto words = [](const std::vector<std::string>& list) {
    return list.empty() ? AdapterJson(nullptr) : AdapterJson(list);
  };
  const bool whole = spec.alpha == std::floor(spec.alpha) && spec.alpha < 1e15;
  AdapterJson init = spec.init != LoraInit::kFalse;
  if (spec.init == LoraInit::kGaussian) init = "gaussian";
  return {{"base_model_name_or_path", nullptr},
          {"bias", "none"},
          {"fan_in_fan_out", layers.fan_in_fan_out},
          {"inference_mode", true},
          {"init_lora_weights", init},
          {"lora_alpha", whole ? AdapterJson(static_cast<int64_t>(spec.alpha))
                               : AdapterJson(spec.alpha)},
          {"lora_dropout", spec.dropout},
          {"modules_to_save", words(layers.saved)},
          {"peft_type", "LORA"},
          {"r", spec.rank},
          {"target_modules", words(layers.modules)},
          {"task_type", nullptr},
          {"use_rslora", spec.rslora}};
}

}  // namespace

AdapterFolder ReadAdapterFolder(const std::string& folder) {
  Check(IsFolder(folder), "[", folder,
        "] expected the folder of an adapter, with adapter_config.json and "
        "adapter_model.safetensors, got ",
        PathExists(folder) ? "a file" : "nothing of that name");
  AdapterFolder read;
  read.spec = ConfigReader(folder + kConfig).Read();
  read.file = folder + kTensors;
  std::set<std::string> modules;
  for (const auto& [name, tensor] : ReadSafetensors(read.file)) {
    Check(name.starts_with(kPrefix), "[", read.file,
          "] expected names that begin with ", kPrefix, ", got \"", name, "\"");
    const std::string own = name.substr(kPrefix.size());
    const std::string module = ModuleOfPart(own);
    if (module.empty()) {
      Check(own.find(".lora_") == std::string::npos, "[", read.file,
            "] expected lora_A.weight and lora_B.weight as parts of adapters, "
            "got \"",
            name, "\"");
      read.parameters.emplace(own, tensor);
    } else {
      modules.insert(module);
      read.adapters.emplace(own, tensor);
    }
  }
  Check(!modules.empty(), "[", read.file, "] expected adapters, got none");
  for (const std::string& module : modules) CheckPair(read, module);
  read.spec.targets.assign(modules.begin(), modules.end());
  read.spec.folder = folder;
  try {
    CheckLora(read.spec);
  } catch (const Error& error) {
    Fail("[", folder, kConfig, "] ", error.what());
  }
  return read;
}

void WriteAdapterFolder(const std::string& folder, const LoraSpec& spec,
                        const AdapterLayers& layers, const SourceMap& tensors) {
  MakeDirectories(folder);
  SourceMap named;
  for (const auto& [name, tensor] : tensors) {
    named.emplace(std::string(kPrefix) + name, tensor);
  }
  // PEFT reads the config first: the tensors are there when it is.
  WriteSafetensors(folder + kTensors, named, {{"format", "pt"}});
  WriteFileAtomically(folder + kConfig, ConfigOf(spec, layers).dump(2) + "\n");
}

}  // namespace onnx_fp8
