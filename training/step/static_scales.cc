// SPDX-License-Identifier: Apache-2.0
#include "training/step/static_scales.h"

#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "base/check.h"
#include "base/file.h"
#include "base/mapped_file.h"
#include "base/shallow_json.h"
#include "training/state/checkpoint.h"

namespace onnx_fp8 {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr char kScalesFormat[] = "onnx_fp8.scales";

// The reciprocal of a subnormal float may be infinite.
bool IsScale(float scale) { return scale > 0 && std::isnormal(scale); }

StaticScales FromRun(const std::string& folder) {
  const std::set<std::string> kept = {kScaleState, kHistoryState};
  auto checkpoint = LoadLatestCheckpoint(folder, kAnyModel, kept);
  Check(checkpoint.has_value(), "[", folder, "] holds no checkpoint");
  auto note = checkpoint->notes.find(kSlotsNote);
  StaticScales scales;
  if (note != checkpoint->notes.end()) {
    scales =
        AsStatic(KeptScales(note->second, checkpoint->state, folder), folder);
  }
  Check(!scales.by_key.empty(), "[", folder,
        "] holds no scales: expected a run with delayed scaling");
  return scales;
}

StaticScales FromFile(const std::string& path) {
  MappedFile file = MapFile(path);
  const char* text = reinterpret_cast<const char*>(file.data);
  nlohmann::json json =
      ParseShallowJson(text, file.size, 4, "[" + path + "] expected scales");
  const std::string refused =
      "[" + path + "] expected scales written by `calibrate()`";
  Check(json.is_object() && json.contains("format") &&
            json["format"] == kScalesFormat && json.contains("scales") &&
            json["scales"].is_object(),
        refused, ", got something else");
  Check(json.contains("version") && json["version"] == 1, refused,
        " of version 1, got another");
  StaticScales scales = {path, {}};
  for (const auto& [key, value] : json["scales"].items()) {
    float scale = value.is_number() ? value.get<float>() : 0;
    Check(IsScale(scale), "[", path,
          "] expected a positive float, no subnormal one, as the scale of ",
          key, ", got ", value.dump());
    scales.by_key[key] = scale;
  }
  return scales;
}

}  // namespace

StaticScales AsStatic(const ScaleState& kept, const std::string& folder) {
  StaticScales scales;
  for (size_t i = 0; i < kept.slots.size(); ++i) {
    float scale = kept.scale.data<float>()[i];
    if (IsScale(scale)) scales.by_key[kept.slots[i].Key()] = scale;
  }
  if (!scales.by_key.empty()) scales.source = folder;
  return scales;
}

StaticScales ReadStaticScales(const std::string& path) {
  return IsFolder(path) ? FromRun(path) : FromFile(path);
}

void WriteStaticScales(const std::string& path, const StaticScales& scales) {
  OrderedJson json = {{"format", kScalesFormat},
                      {"version", 1},
                      {"scales", OrderedJson::object()}};
  for (const auto& [key, scale] : scales.by_key) json["scales"][key] = scale;
  WriteFileAtomically(path, json.dump(1) + "\n");
}

}  // namespace onnx_fp8
