// SPDX-License-Identifier: Apache-2.0
#include "cli/report/cast_table.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "cli/report/text.h"
#include "training/run/metrics.h"

namespace onnx_fp8 {
namespace {

std::string Percent(double share) {
  return share > 0 ? Number(100 * share, 3) + " %" : "0";
}

std::string Decibels(double sqnr) {
  return std::isfinite(sqnr) ? Fixed(sqnr, 1) + " dB" : "no noise";
}

}  // namespace

void PrintCasts(std::ostream& out, const std::vector<MeasuredCast>& casts) {
  if (casts.empty()) {
    out << "casts to FP8: no batch measured them\n";
    return;
  }
  std::vector<MeasuredCast> sorted = casts;
  std::ranges::stable_sort(
      sorted, {}, [](const MeasuredCast& cast) { return cast.numbers.Sqnr(); });
  out << "casts to FP8 and their products, the noisiest first:\n";
  Table table({"layer", "GEMM", "operand", "use", "format", "SQNR", "of a line",
               "saturated", "flushed", "not finite", "amax", "range"});
  for (const MeasuredCast& cast : sorted) {
    const CastStatistics& n = cast.numbers;
    table.Row({cast.fqn, cast.gemm, cast.operand, std::to_string(cast.use),
               cast.is_product() ? "-" : Name(cast.format), Decibels(n.Sqnr()),
               Decibels(n.LineSqnr()),
               cast.is_product() ? "-" : Percent(n.Share(n.saturated)),
               Percent(n.Share(n.flushed)), Percent(n.Share(n.not_finite)),
               Number(n.amax, 4), Fixed(n.RangeBits(), 1) + " bits"});
  }
  table.Print(out);
}

nlohmann::ordered_json CastsJson(const std::vector<MeasuredCast>& casts) {
  auto json = nlohmann::ordered_json::array();
  for (const MeasuredCast& cast : casts) {
    json.push_back(nlohmann::ordered_json::parse(JsonOf(cast)));
  }
  return json;
}

}  // namespace onnx_fp8
