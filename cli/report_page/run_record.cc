// SPDX-License-Identifier: Apache-2.0
#include "cli/report_page/run_record.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "base/check.h"
#include "base/file.h"
#include "base/input_file.h"
#include "base/shallow_json.h"
#include "data/json_lines.h"

namespace onnx_fp8 {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kLongestConfig = uint64_t{16} << 20;
constexpr char kMetrics[] = "metrics.jsonl";
constexpr char kStatistics[] = "statistics.jsonl";
constexpr char kConfig[] = "config.json";

bool IsThere(const std::string& folder, const char* name) {
  return PathExists(folder + "/" + name);
}

// A small file of the folder. Errors: a link; more than 16 MiB.
std::string ReadSmall(const std::string& folder, const char* name) {
  return ReadText(InputFile(folder, name), kLongestConfig);
}

void AddPoint(const JsonFields& line, const char* key, Curve* curve) {
  const std::optional<double> value = line.Number(key);
  if (value && std::isfinite(*value)) {
    curve->push_back({line.Step(), *value});
  }
}

void NoteLeftOut(const JsonLineCounts& counts, const char* name,
                 RunRecord* run) {
  if (counts.left_out == 0) return;
  run->notes.push_back(Concat(counts.left_out,
                              counts.left_out == 1 ? " line of " : " lines of ",
                              name, counts.left_out == 1 ? " is" : " are",
                              " left out: expected a JSON object with a step"));
}

void ReadMetrics(RunRecord* run) {
  const std::string file = run->folder + "/" + kMetrics;
  Check(PathExists(file), "[", run->folder,
        "] expected the folder of a run, which `train()` writes to `out`, got "
        "one without ",
        kMetrics);
  auto counts = ReadJsonLines(run->folder, kMetrics, [&](const auto& line) {
    const int64_t step = line.Step();
    run->last_step = std::max(run->last_step, step);
    AddPoint(line, "loss", &run->loss);
    AddPoint(line, "grad_norm", &run->grad_norm);
    AddPoint(line, "val_loss", &run->val_loss);
    if (line.On("skipped")) run->skipped.push_back(step);
    if (line.IsNull("loss") || line.IsNull("val_loss")) {
      run->not_finite.push_back(step);
    }
    run->stopped_early |= line.On("stopped_early");
  });
  Check(counts.read > 0, "[", file,
        "] expected a JSON object with a step in each line, got ",
        counts.left_out == 0 ? "no line" : "none");
  for (Curve* curve : {&run->loss, &run->grad_norm, &run->val_loss}) {
    std::ranges::stable_sort(*curve, {}, &CurvePoint::step);
  }
  std::ranges::sort(run->skipped);
  std::ranges::sort(run->not_finite);
  NoteLeftOut(counts, kMetrics, run);
}

// A number of a line as a share or in dB.
float NumberOr(const JsonFields& line, const char* key, float other) {
  const std::optional<double> value = line.Number(key);
  return value && std::abs(*value) < 1e30 ? static_cast<float>(*value) : other;
}

CastSample SampleOf(const JsonFields& line) {
  constexpr float kNone = std::numeric_limits<float>::quiet_NaN();
  return {line.Step(),
          NumberOr(line, "sqnr", std::numeric_limits<float>::infinity()),
          NumberOr(line, "saturated", kNone), NumberOr(line, "flushed", kNone)};
}

void ReadStatistics(RunRecord* run) {
  if (!IsThere(run->folder, kStatistics)) return;
  std::unordered_map<std::string, size_t> rows;
  std::string name;
  auto counts = ReadJsonLines(run->folder, kStatistics, [&](const auto& line) {
    const auto use = static_cast<int64_t>(
        std::clamp(line.Number("use").value_or(1), 1.0, 1e6));
    name.clear();
    for (const char* key : {"fqn", "gemm", "operand"}) {
      name.append(line.Text(key)).push_back('\0');
    }
    name += std::to_string(use);
    auto [at, is_new] = rows.try_emplace(name, run->casts.size());
    if (is_new) {
      CastRow& row = run->casts.emplace_back();
      row.fqn = line.Text("fqn");
      row.gemm = line.Text("gemm");
      row.operand = line.Text("operand");
      row.format = line.Text("format");
      row.use = use;
    }
    run->casts[at->second].samples.push_back(SampleOf(line));
  });
  NoteLeftOut(counts, kStatistics, run);
}

std::string WordsText(const Json& words) {
  if (words.is_string()) return words.get<std::string>();
  std::string text;
  for (const Json& word : words) {
    if (!word.is_string()) continue;
    text += (text.empty() ? "" : " ") + word.get<std::string>();
  }
  return text;
}

// The settings, which only a run of `onnx-fp8 train` has. They are shown, not
// used: the checksum in the file does not matter.
void ReadConfig(RunRecord* run) {
  const std::string expected =
      "[" + run->folder + "/config.json] expected a run's configuration";
  const std::string text = ReadSmall(run->folder, kConfig);
  const Json json =
      ParseShallowJson<Json>(text.data(), text.size(), 3, expected);
  Check(json.is_object(), expected, ", got something else");
  auto text_of = [&](const Json& in, const char* key) {
    const bool there = in.is_object() && in.contains(key);
    return there && in[key].is_string() ? in[key].get<std::string>() : "";
  };
  if (std::string program = text_of(json, "program"); !program.empty()) {
    run->facts.emplace_back("program", program);
  }
  for (const char* kind : {"model", "loss", "optimizer"}) {
    if (!json.contains(kind)) continue;
    const std::string file = text_of(json[kind], "file");
    if (file.empty()) continue;
    run->facts.emplace_back(kind,
                            file + ", CRC-32 " + text_of(json[kind], "crc32"));
  }
  if (!json.contains("flags") || !json["flags"].is_object()) return;
  for (const auto& [flag, words] : json["flags"].items()) {
    run->settings.emplace_back(flag, WordsText(words));
  }
}

void ReadLatest(RunRecord* run) {
  std::string name = ReadSmall(run->folder, "latest");
  name.erase(name.find_last_not_of(" \n") + 1);
  run->facts.emplace_back("last checkpoint", name);
}

}  // namespace

RunRecord ReadRunRecord(const std::string& folder) {
  RunRecord run;
  run.folder = folder;
  Check(PathExists(folder), "[", folder, "] there is no such folder");
  Check(IsFolder(folder), "[", folder,
        "] is a file: expected the folder of a run, which `train()` writes to "
        "`out`");
  ReadMetrics(&run);
  ReadStatistics(&run);
  // The page is worth reading without them.
  try {
    if (IsThere(folder, kConfig)) ReadConfig(&run);
    if (IsThere(folder, "latest")) ReadLatest(&run);
  } catch (const Error& error) {
    run.notes.push_back(error.what());
  }
  return run;
}

}  // namespace onnx_fp8
