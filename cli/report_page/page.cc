// SPDX-License-Identifier: Apache-2.0
#include "cli/report_page/page.h"

#include <algorithm>
#include <cassert>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/printable.h"
#include "cli/report_page/page_parts.h"

namespace onnx_fp8 {
namespace {

using Json = nlohmann::ordered_json;

// These limits keep a page below 2 MB. Within them, three runs of 2,000 steps
// and 300 tensors each keep all points of their curves, and 200 columns.
constexpr size_t kMostCurvePoints = 20'000;  // of all curves
constexpr size_t kMostColumns = 200;
constexpr size_t kFewestColumns = 20;
constexpr size_t kMostCells = 540'000;  // of all pictures
constexpr size_t kMostRows = 4'000;     // of all runs
constexpr size_t kMostRanges = 200;     // of skipped steps of one run
constexpr size_t kMostMarks = 200;      // on a curve
constexpr size_t kMostSettings = 200;
constexpr size_t kPictures = 3;

// Four significant digits.
double Short(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.4g", value);
  return std::strtod(text, nullptr);
}

Json CurveJson(const Curve& curve, size_t most) {
  Json steps = Json::array(), values = Json::array();
  for (const CurvePoint& point : Thinned(curve, most)) {
    steps.push_back(point.step);
    values.push_back(Short(point.value));
  }
  return {{"steps", steps}, {"values", values}, {"measured", curve.size()}};
}

// [[12, 12], [40, 55]] and the number of steps.
Json RangesJson(const std::vector<int64_t>& steps) {
  Json ranges = Json::array();
  size_t told = 0;
  for (size_t i = 0; i < steps.size() && ranges.size() < kMostRanges;) {
    size_t end = i + 1;
    while (end < steps.size() && steps[end] - steps[end - 1] <= 1) ++end;
    ranges.push_back({steps[i], steps[end - 1]});
    told += end - i;
    i = end;
  }
  return {{"count", steps.size()}, {"ranges", ranges}, {"told", told}};
}

// Where skipped steps are marked on the curve of the loss. A skipped step
// without a finite loss is marked at the loss of an earlier step.
Json MarksJson(const RunRecord& run) {
  Json marks = Json::array();
  const size_t count = std::min(run.skipped.size(), kMostMarks);
  for (size_t i = 0; i < count; ++i) {
    const int64_t step = run.skipped[i * run.skipped.size() / count];
    auto after =
        std::ranges::upper_bound(run.loss, step, {}, &CurvePoint::step);
    if (after == run.loss.begin()) continue;
    marks.push_back({step, Short(std::prev(after)->value)});
  }
  return marks;
}

Json PairsJson(const std::vector<std::pair<std::string, std::string>>& pairs) {
  Json list = Json::array();
  for (const auto& [name, value] : pairs) {
    if (list.size() == kMostSettings) break;
    list.push_back({Printable(name), Printable(value)});
  }
  return list;
}

float LeastSqnr(const CastRow& row) {
  float least = std::numeric_limits<float>::infinity();
  for (const CastSample& s : row.samples) least = std::min(least, s.sqnr);
  return least;
}

// All rows or the `most` noisiest ones, in the order of the file.
std::vector<const CastRow*> ShownRows(const RunRecord& run, size_t most) {
  std::vector<const CastRow*> rows;
  for (const CastRow& row : run.casts) rows.push_back(&row);
  if (rows.size() <= most) return rows;
  std::vector<std::pair<float, const CastRow*>> noisy;
  for (const CastRow* row : rows) noisy.emplace_back(LeastSqnr(*row), row);
  std::ranges::stable_sort(noisy, {}, [](const auto& n) { return n.first; });
  rows.clear();
  for (size_t i = 0; i < most; ++i) rows.push_back(noisy[i].second);
  std::ranges::sort(rows);  // they lie in one vector
  return rows;
}

Json CastsOf(const RunRecord& run, size_t most_rows, size_t most_columns) {
  if (run.casts.empty()) return nullptr;
  const StepColumns columns = ColumnsOf(run.casts, most_columns);
  Json rows = Json::array();
  std::string sqnr, saturated, flushed;
  for (const CastRow* row : ShownRows(run, most_rows)) {
    rows.push_back({Printable(row->fqn), Printable(row->gemm),
                    Printable(row->operand), row->use, Printable(row->format)});
    auto worst = [&](float CastSample::*number, WorstIs is) {
      return WorstOf(*row, columns, number, is);
    };
    sqnr += DecibelCodes(worst(&CastSample::sqnr, WorstIs::kLeast));
    saturated += ShareCodes(worst(&CastSample::saturated, WorstIs::kLargest));
    flushed += ShareCodes(worst(&CastSample::flushed, WorstIs::kLargest));
  }
  return {{"first", columns.first},
          {"last", columns.last},
          {"measured", columns.measured},
          {"left_out", run.casts.size() - rows.size()},
          {"rows", rows},
          {"sqnr", sqnr},
          {"saturated", saturated},
          {"flushed", flushed}};
}

Json NotesJson(const RunRecord& run) {
  Json notes = Json::array();
  for (const std::string& note : run.notes) notes.push_back(Printable(note));
  return notes;
}

// `text` with each {{name}} replaced; what is put in is not searched again.
std::string FilledPage(
    std::string_view text,
    std::span<const std::pair<std::string_view, std::string_view>> parts) {
  std::string page;
  while (true) {
    const size_t begin = text.find("{{"), end = text.find("}}", begin);
    if (end == std::string_view::npos) return page.append(text);
    page.append(text.substr(0, begin));
    const std::string_view name = text.substr(begin + 2, end - begin - 2);
    for (const auto& [known, part] : parts) {
      if (known == name) page.append(part);
    }
    text.remove_prefix(end + 2);
  }
}

}  // namespace

std::string InScript(std::string_view json) {
  std::string text;
  text.reserve(json.size());
  for (char letter : json) {
    switch (letter) {
      case '<':
        text += "\\u003c";
        break;
      case '>':
        text += "\\u003e";
        break;
      case '&':
        text += "\\u0026";
        break;
      default:
        text += letter;
    }
  }
  return text;
}

std::string PageData(std::span<const RunRecord> runs) {
  assert(!runs.empty() && runs.size() <= kMostReportedRuns);
  const size_t most_points = kMostCurvePoints / (3 * runs.size());
  const size_t most_rows = kMostRows / runs.size();
  size_t rows = 0;
  for (const RunRecord& run : runs) {
    rows += std::min(run.casts.size(), most_rows);
  }
  const size_t most_columns =
      std::clamp(kMostCells / (kPictures * std::max<size_t>(rows, 1)),
                 kFewestColumns, kMostColumns);
  Json list = Json::array();
  for (const RunRecord& run : runs) {
    list.push_back({{"folder", Printable(run.folder)},
                    {"facts", PairsJson(run.facts)},
                    {"settings", PairsJson(run.settings)},
                    {"last_step", run.last_step},
                    {"stopped_early", run.stopped_early},
                    {"loss", CurveJson(run.loss, most_points)},
                    {"grad_norm", CurveJson(run.grad_norm, most_points)},
                    {"val_loss", CurveJson(run.val_loss, most_points)},
                    {"skipped", RangesJson(run.skipped)},
                    {"not_finite", RangesJson(run.not_finite)},
                    {"marks", MarksJson(run)},
                    {"casts", CastsOf(run, most_rows, most_columns)},
                    {"notes", NotesJson(run)}});
  }
  // ASCII alone: no separator of lines that HTML or JavaScript knows.
  return Json({{"version", ONNX_FP8_VERSION}, {"runs", list}})
      .dump(-1, ' ', true, Json::error_handler_t::replace);
}

std::string ReportPage(std::span<const RunRecord> runs) {
  const std::string data = InScript(PageData(runs));
  const std::pair<std::string_view, std::string_view> parts[] = {
      {"begin", kPageBegin},
      {"css", kPageCss},
      {"charts", kPageCharts},
      {"data", data},
      {"script", kPageScript}};
  return FilledPage(kPageHtml, parts);
}

}  // namespace onnx_fp8
