// SPDX-License-Identifier: Apache-2.0
#include "graph/onnx/step_notes.h"

#include <nlohmann/json.hpp>
#include <optional>

#include "base/check.h"
#include "base/shallow_json.h"

namespace onnx_fp8 {
namespace {

using Json = nlohmann::json;

constexpr int kNotesVersion = 1;

std::optional<Role> ParseRole(const std::string& word) {
  for (Role role = Role::kParameter; role <= Role::kBound;
       role = static_cast<Role>(static_cast<int>(role) + 1)) {
    if (word == Name(role)) return role;
  }
  return std::nullopt;
}

Json ToJson(const ParameterName& name) {
  Json json = {{"fqn", name.fqn}};
  if (name.transposed) json["transposed"] = true;
  if (!name.remark.empty()) json["remark"] = name.remark;
  return json;
}

ParameterName NameIn(const Json& json) {
  return {json.at("fqn"), json.value("transposed", false),
          json.value("remark", "")};
}

}  // namespace

std::string NotesText(const StepNotes& notes) {
  Json json = {{"version", kNotesVersion},
               {"part", notes.part},
               {"settings", notes.settings},
               {"values", notes.values},
               {"amax_labels", notes.amax_labels}};
  json["roles"] = Json::object();
  for (const auto& [name, role] : notes.roles) {
    json["roles"][name] = Name(role);
  }
  json["names"] = Json::object();
  for (const auto& [name, torch] : notes.names) {
    json["names"][name] = ToJson(torch);
  }
  json["copies"] = Json::array();
  for (const NotedCopy& copy : notes.copies) {
    json["copies"].push_back({{"name", copy.name},
                              {"torch", ToJson(copy.torch)},
                              {"first", copy.first},
                              {"transposed", copy.transposed}});
  }
  return json.dump();
}

StepNotes ParseNotes(const std::string& text, const std::string& file) {
  const std::string expected =
      Concat("[", file, "] expected notes of a training step as the metadata ",
             kStepNotes);
  auto json = ParseShallowJson(text.data(), text.size(), 4, expected);
  Check(json.is_object(), expected, ", got another text");
  StepNotes notes;
  try {
    int version = json.at("version");
    Check(version == kNotesVersion, expected, " of version ", kNotesVersion,
          ", got version ", version);
    notes.part = json.at("part");
    Check(
        notes.part == "whole" || notes.part == "micro" || notes.part == "apply",
        expected, " with the part whole, micro or apply, got \"", notes.part,
        "\"");
    notes.settings = json.at("settings");
    notes.values = json.at("values");
    notes.amax_labels = json.at("amax_labels");
    for (const auto& [name, value] : json.at("roles").items()) {
      std::string word = value;
      auto role = ParseRole(word);
      Check(role.has_value(), expected, " with known roles, got \"", word,
            "\" for ", name);
      notes.roles[name] = *role;
    }
    for (const auto& [name, value] : json.at("names").items()) {
      notes.names[name] = NameIn(value);
    }
    for (const auto& copy : json.at("copies")) {
      notes.copies.push_back({copy.at("name"), NameIn(copy.at("torch")),
                              copy.at("first"), copy.at("transposed")});
    }
  } catch (const Json::exception&) {
    Fail(expected, ", got a text that lacks a part of them");
  }
  return notes;
}

}  // namespace onnx_fp8
