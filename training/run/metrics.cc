// SPDX-License-Identifier: Apache-2.0
#include "training/run/metrics.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/check.h"
#include "base/file.h"
#include "base/shallow_json.h"

namespace onnx_fp8 {
namespace {

using Line = nlohmann::ordered_json;

void Add(Line& line, const std::string& key, double value) {
  if (std::isfinite(value)) {
    line[key] = value;
  } else {
    line[key] = nullptr;
    line["nonfinite"] = true;
  }
}

void Add(Line& line, const std::string& key,
         const std::optional<double>& value) {
  if (value) Add(line, key, *value);
}

void Add(Line& line, const MeasuredCast& cast) {
  const CastStatistics& n = cast.numbers;
  line["fqn"] = cast.fqn;
  line["gemm"] = cast.gemm;
  line["operand"] = cast.operand;
  line["use"] = cast.use;
  if (!cast.is_product()) line["format"] = Name(cast.format);
  line["amax"] = n.amax;
  if (!cast.is_product()) line["scale"] = n.scale;
  line["zeros"] = n.Share(n.zeros);
  line["flushed"] = n.Share(n.flushed);
  if (!cast.is_product()) line["saturated"] = n.Share(n.saturated);
  if (n.not_finite > 0) line["not_finite"] = n.Share(n.not_finite);
  if (std::isfinite(n.Sqnr())) line["sqnr"] = n.Sqnr();
  if (std::isfinite(n.LineSqnr())) line["line_sqnr"] = n.LineSqnr();
  if (n.amax > 0) line["range_bits"] = n.RangeBits();
}

// The step of a line; -1 if the line is not ours.
int64_t StepOf(const std::string& text) {
  try {
    auto line = ParseShallowJson(text.data(), text.size(), 4, "");
    if (!line.is_object() || !line.contains("step")) return -1;
    const auto& step = line["step"];
    return step.is_number_integer() ? step.get<int64_t>() : -1;
  } catch (const Error&) {  // deep nesting
    return -1;
  }
}

// Lines of metrics are short. Returns false at the end of the file; a longer
// line is read as an empty one.
class LineReader {
 public:
  explicit LineReader(std::istream& file) : file_(file), buffer_(1 << 20) {}

  bool Next(std::string* text) {
    auto size = static_cast<std::streamsize>(buffer_.size());
    if (file_.getline(buffer_.data(), size)) {
      std::streamsize newline = file_.eof() ? 0 : 1;
      text->assign(buffer_.data(),
                   static_cast<size_t>(file_.gcount() - newline));
      return true;
    }
    if (file_.eof() || file_.bad()) return false;
    text->clear();
    file_.clear();
    file_.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
    return true;
  }

 private:
  std::istream& file_;
  std::vector<char> buffer_;
};

}  // namespace

std::string JsonOf(const MeasuredCast& cast) {
  Line line;
  Add(line, cast);
  return line.dump();
}

MetricsFile::MetricsFile(const std::string& path, int64_t last_step) {
  std::string kept;
  bool replace = false;
  if (std::ifstream old(path, std::ios::binary); old) {
    LineReader lines(old);
    for (std::string text; lines.Next(&text);) {
      bool whole = !old.eof();  // ended by a newline
      int64_t step = StepOf(text);
      if (whole && step >= 0 && step <= last_step && last_step > 0) {
        kept += text + "\n";
      } else {
        ++cut_;
      }
    }
    Check(!old.bad(), "[", path, "] can't be read");
    // A file with other names would grow under those names too.
    replace = cut_ > 0 || std::filesystem::hard_link_count(path) > 1;
  }
  if (replace) WriteFileAtomically(path, kept);
  file_.emplace(path);
}

void MetricsFile::Append(const StepMetrics& metrics) {
  Line line = {{"step", metrics.step}};
  Add(line, "loss", metrics.loss);
  bool unknown = metrics.grad_norm < 0;
  if (!unknown) Add(line, "grad_norm", metrics.grad_norm);
  if (metrics.loss_scale > 0) Add(line, "loss_scale", metrics.loss_scale);
  if (metrics.update_amax >= 0) Add(line, "update_amax", metrics.update_amax);
  Add(line, "lr", metrics.lr);
  Add(line, "samples_per_second", metrics.samples_per_second);
  Add(line, "tokens_per_second", metrics.tokens_per_second);
  if (metrics.skipped) line["skipped"] = true;
  file_->Append(line.dump() + "\n");
}

void MetricsFile::Append(const ValidationMetrics& metrics) {
  Line line = {{"step", metrics.step}};
  Add(line, "val_loss", metrics.val_loss);
  Add(line, "val_accuracy", metrics.val_accuracy);
  Add(line, "val_perplexity", metrics.val_perplexity);
  for (const auto& [name, value] : metrics.measures) {
    Add(line, "val_" + name, value);
  }
  if (metrics.of_averages) line["val_weights"] = "ema";
  if (metrics.stops_early) line["stopped_early"] = true;
  file_->Append(line.dump() + "\n");
}

void MetricsFile::Append(const CastMetrics& metrics) {
  Line line = {{"step", metrics.step}};
  Add(line, metrics.cast);
  file_->Append(line.dump() + "\n");
}

}  // namespace onnx_fp8
