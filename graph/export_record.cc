// SPDX-License-Identifier: Apache-2.0
#include "graph/export_record.h"

#include "base/check.h"
#include "base/shallow_json.h"

namespace onnx_fp8 {
namespace {

using Json = nlohmann::json;

constexpr int kVersion = 1;

std::optional<TensorKind> ParseKind(const std::string& word) {
  if (word == "parameter") return TensorKind::kParameter;
  if (word == "buffer") return TensorKind::kBuffer;
  if (word == "constant") return TensorKind::kConstant;
  return {};
}

const char* Word(TensorKind kind) {
  switch (kind) {
    case TensorKind::kParameter:
      return "parameter";
    case TensorKind::kBuffer:
      return "buffer";
    case TensorKind::kConstant:
      return "constant";
  }
  return "";
}

TensorRecord ParseTensor(const Json& json, const std::string& name,
                         const std::string& expected) {
  std::string word = json.at("kind");
  auto kind = ParseKind(word);
  Check(kind.has_value(), expected,
        " with the kinds parameter, buffer and constant, got \"", word,
        "\" for ", name);
  TensorRecord record{.kind = *kind, .full = true};
  record.key = json.value("key", "");
  record.requires_grad = json.value("requires_grad", true);
  record.persistent = json.value("persistent", true);
  record.transposed = json.value("transposed", false);
  for (int64_t size : json.at("shape")) record.shape.push_back(size);
  if (json.contains("padding_idx")) {
    record.padding_idx = json.at("padding_idx").get<int64_t>();
  }
  return record;
}

void ParseRecord(const std::string& text, const std::string& file,
                 ExportRecord* record) {
  const std::string expected =
      Concat("[", file, "] expected the metadata ", kExportRecord,
             " to be a record of tensors");
  auto json = ParseShallowJson(text.data(), text.size(), 4, expected);
  Check(json.is_object(), expected, ", got another text");
  try {
    int version = json.at("version");
    Check(version == kVersion, expected, " of version ", kVersion,
          ", got version ", version);
    for (const auto& [name, entry] : json.at("tensors").items()) {
      record->tensors[name] = ParseTensor(entry, name, expected);
    }
    if (json.contains("tied")) {
      record->tied =
          json.at("tied").get<std::vector<std::vector<std::string>>>();
    }
    record->separate = json.value("separate", false);
  } catch (const Json::exception&) {
    Fail(expected, ", got a text that lacks a part of it");
  }
}

}  // namespace

const TensorRecord* ExportRecord::Find(const std::string& name,
                                       const Shape& shape) const {
  auto it = tensors.find(name);
  if (it == tensors.end()) return nullptr;
  return it->second.full && it->second.shape != shape ? nullptr : &it->second;
}

ExportRecord ReadExportRecord(const Graph& graph) {
  ExportRecord record;
  auto signature = graph.metadata.find(kGraphSignature);
  if (signature != graph.metadata.end()) {
    Json json = Json::parse(signature->second);  // SignatureText wrote it
    record.from_torch = json.at("producer") == "pytorch";
    for (const auto& [name, word] : json.at("kinds").items()) {
      record.tensors[name].kind = *ParseKind(word);
    }
  }
  auto own = graph.metadata.find(kExportRecord);
  if (own != graph.metadata.end()) {
    ParseRecord(own->second, graph.file, &record);
  }
  return record;
}

std::string SignatureText(const std::string& producer,
                          const std::map<std::string, TensorKind>& kinds) {
  Json json = {{"producer", producer}, {"kinds", Json::object()}};
  for (const auto& [name, kind] : kinds) json["kinds"][name] = Word(kind);
  // Names are bytes that anybody may have written.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace onnx_fp8
