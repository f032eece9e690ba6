// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/node_report.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/printable.h"
#include "cli/bench/provider_peaks.h"
#include "cli/report/text.h"

namespace onnx_fp8 {
namespace {

using OrderedJson = nlohmann::ordered_json;

std::string ShapeOf(const NodeCase& node) {
  return node.shape.empty() ? ToString(node.operands[0].shape) : node.shape;
}

// Time of the copy, as a percentage of the node's time.
std::string ShareOfCopy(const NodeResult& r) {
  if (r.copy.runs == 0) return "";
  return Fixed(100 * r.copy.seconds / r.time.seconds, 1);
}

// A result as its reader wants to see it.
struct Figures {
  Figures(const NodeResult& r, const GpuPeaks& peaks)
      : flops(r.cost.flops / r.time.seconds),
        bytes(r.cost.bytes / r.time.seconds),
        known(peaks.name != nullptr) {
    if (!known) return;
    share = r.cost.milliseconds / 1e3 / r.time.seconds;
    by_memory = r.cost.milliseconds <= 1e3 * (r.cost.bytes / peaks.bytes);
  }

  double flops, bytes;     // per second
  bool known;              // the peaks, which the other two need
  double share = 0;        // of what the peaks allow
  bool by_memory = false;  // they allow no more because of the bytes

  const char* bound() const {
    return !known ? "" : by_memory ? "memory" : "operations";
  }
};

std::vector<std::string> RowOf(const NodeResult& r, const GpuPeaks& peaks) {
  std::string name = NameOf(r.node), shape = ShapeOf(r.node);
  if (r.time.runs == 0) {
    return {name, shape, "", r.error.empty() ? "none" : "failed",
            "",   "",    "", ""};
  }
  Figures f(r, peaks);
  return {name,
          shape,
          Fixed(1e6 * r.time.seconds, 1),
          Number(r.multiplies ? f.flops / 1e12 : f.bytes / 1e9, 4),
          r.multiplies ? "TF/s" : "GB/s",
          f.known ? Fixed(100 * f.share, 1) : "",
          ShareOfCopy(r),
          f.bound()};
}

OrderedJson JsonOf(const NodeResult& r, const GpuPeaks& peaks) {
  OrderedJson row = {{"group", r.node.group}, {"op", r.node.op},
                     {"what", r.node.what},   {"shape", ShapeOf(r.node)},
                     {"flops", r.cost.flops}, {"bytes", r.cost.bytes}};
  if (!r.error.empty()) row["error"] = r.error;
  if (!r.note.empty()) row["note"] = r.note;
  if (r.time.runs == 0) return row;
  Figures f(r, peaks);
  row["us"] = 1e6 * r.time.seconds;
  row["runs"] = r.time.runs;
  row["gflops"] = f.flops / 1e9;
  row["gbytes"] = f.bytes / 1e9;
  // JSON has no infinity.
  if (std::isfinite(r.difference)) row["difference"] = r.difference;
  if (f.known) row["share"] = f.share;
  if (f.known) row["bound"] = f.bound();
  if (r.copy.runs == 0) return row;
  row["moved_bytes"] = r.moved;
  row["copy_gbytes"] = r.moved / r.copy.seconds / 1e9;
  row["copy_share"] = r.copy.seconds / r.time.seconds;
  return row;
}

}  // namespace

std::string NameOf(const NodeCase& node) {
  return node.what.empty() ? node.op : node.op + ", " + node.what;
}

int64_t NodeReport::Failed() const {
  return std::ranges::count_if(
      results, [](const NodeResult& r) { return !r.error.empty(); });
}

void NodeReport::Print(std::ostream& out) const {
  out << "Nodes in " << dtype << " (" << machine << ")";
  if (peaks.name) out << "; %: of the peaks of " << TextOf(peaks);
  out << "\n";
  std::string group;
  Table table(
      {"node", "shape", "us", "speed", "", "%", "% of a copy", "bound by"});
  for (const NodeResult& r : results) {
    if (r.node.group != group) {
      group = r.node.group;
      table.Row({group + ":", "", "", "", "", "", "", ""});
    }
    table.Row(RowOf(r, peaks));
  }
  table.Print(out);
  out << Failed() << " of " << results.size() << " nodes failed or are wrong\n";
  for (const NodeResult& r : results) {
    for (const std::string& text : {r.error, r.note}) {
      if (text.empty()) continue;
      out << "  " << NameOf(r.node) << " " << ShapeOf(r.node) << ": "
          << Printable(text) << "\n";
    }
  }
}

OrderedJson NodeReport::Json() const {
  OrderedJson report = {{"benchmark", "nodes"}, {"provider", provider},
                        {"machine", machine},   {"dtype", dtype},
                        {"quick", quick},       {"failed", Failed()}};
  if (peaks.name) {
    report["peaks"] = {{"of", peaks.name},
                       {"fp8_gflops", peaks.fp8 / 1e9},
                       {"narrow_gflops", peaks.narrow / 1e9},
                       {"fp32_gflops", peaks.fp32 / 1e9},
                       {"gbytes", peaks.bytes / 1e9}};
  }
  report["nodes"] = OrderedJson::array();
  for (const NodeResult& r : results) {
    report["nodes"].push_back(JsonOf(r, peaks));
  }
  return report;
}

}  // namespace onnx_fp8
