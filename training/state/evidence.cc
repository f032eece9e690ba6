// SPDX-License-Identifier: Apache-2.0
#include "training/state/evidence.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/file.h"
#include "base/input_file.h"
#include "base/shallow_json.h"

namespace onnx_fp8 {
namespace {

using EvidenceJson = nlohmann::ordered_json;

constexpr int kEvidenceFormat = 1;
constexpr uint64_t kMostEvidenceBytes = uint64_t{64} << 20;

EvidenceJson NumberOrNull(double number) {
  return std::isfinite(number) ? EvidenceJson(number) : EvidenceJson(nullptr);
}

double NumberIn(const EvidenceJson& json, const char* key) {
  const EvidenceJson& number = json.at(key);
  return number.is_null() ? std::numeric_limits<double>::quiet_NaN()
                          : number.get<double>();
}

EvidenceJson ToJson(const StepEvidence& e) {
  return {{"kind", e.kind},
          {"step", e.step},
          {"cause", e.cause},
          {"loss", NumberOrNull(e.loss)},
          {"grad_norm", NumberOrNull(e.grad_norm)},
          {"loss_scale", e.loss_scale},
          {"batches", e.batches},
          {"samples", e.samples},
          {"seed", e.seed},
          {"checkpoint", e.checkpoint},
          {"ranks", e.ranks},
          {"program", e.program}};
}

StepEvidence FromJson(const EvidenceJson& json) {
  StepEvidence e;
  json.at("kind").get_to(e.kind);
  json.at("step").get_to(e.step);
  json.at("cause").get_to(e.cause);
  e.loss = NumberIn(json, "loss");
  e.grad_norm = NumberIn(json, "grad_norm");
  e.loss_scale = NumberIn(json, "loss_scale");
  json.at("batches").get_to(e.batches);
  json.at("samples").get_to(e.samples);
  json.at("seed").get_to(e.seed);
  json.at("checkpoint").get_to(e.checkpoint);
  json.at("ranks").get_to(e.ranks);
  json.at("program").get_to(e.program);
  return e;
}

// The names of files come from the file: none may lead elsewhere.
bool IsPlainName(const std::string& name) {
  return name.find('/') == std::string::npos && name != "." && name != "..";
}

}  // namespace

std::string EvidenceFile(const std::string& dir) {
  return dir + "/evidence.json";
}

std::vector<StepEvidence> ReadEvidence(const std::string& dir) {
  const std::string path = EvidenceFile(dir);
  if (!PathExists(path)) return {};
  const std::string refused = "[" + path + "] expected evidence of a run";
  const std::string text = ReadText(path, kMostEvidenceBytes);
  // Depth 5: the file, its events, an event, its samples, those of a batch.
  const auto json =
      ParseShallowJson<EvidenceJson>(text.data(), text.size(), 5, refused);
  Check(json.is_object() && json.contains("format"), refused,
        ", got something else");
  Check(json["format"] == kEvidenceFormat, refused, " of format ",
        kEvidenceFormat, ", got ", json["format"].dump(),
        ": another version of onnx-fp8 wrote it");
  std::vector<StepEvidence> evidence;
  try {
    for (const EvidenceJson& event : json.at("events")) {
      evidence.push_back(FromJson(event));
      const StepEvidence& e = evidence.back();
      Check((e.kind == kNotFinite || e.kind == kSpike) && e.step >= 1 &&
                IsPlainName(e.checkpoint),
            refused, ", got a damaged one");
    }
  } catch (const nlohmann::json::exception&) {
    Fail(refused, ", got a damaged one");
  }
  std::ranges::stable_sort(evidence, {}, &StepEvidence::step);
  return evidence;
}

void WriteEvidence(const std::string& dir,
                   const std::vector<StepEvidence>& evidence) {
  if (evidence.empty()) {
    RemoveTree(EvidenceFile(dir));
    return;
  }
  std::string text =
      Concat("{\"format\": ", kEvidenceFormat, ", \"events\": [");
  for (const StepEvidence& e : evidence) {
    if (&e != &evidence[0]) text += ",";
    text += "\n" + ToJson(e).dump(-1, ' ', false,
                                  EvidenceJson::error_handler_t::replace);
  }
  WriteFileAtomically(EvidenceFile(dir), text + "\n]}\n");
}

std::set<std::string> CheckpointsOfEvidence(const std::string& dir) {
  std::set<std::string> names;
  try {
    for (const StepEvidence& e : ReadEvidence(dir)) names.insert(e.checkpoint);
  } catch (const Error&) {
    return {};
  }
  names.erase("");
  return names;
}

}  // namespace onnx_fp8
