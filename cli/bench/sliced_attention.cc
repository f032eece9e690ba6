// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/sliced_attention.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/printable.h"
#include "cli/bench/provider_peaks.h"
#include "cli/report/text.h"

namespace onnx_fp8 {
namespace {

using OrderedJson = nlohmann::ordered_json;

NodeTime TimeOf(const NodeCase& node, DType dtype, int64_t calls,
                ExecutionProvider& provider, double seconds) {
  auto graph = MakeNodeGraph(node, dtype, {&provider.Kernels()});
  return TimeNode(graph->nodes().front(), provider, seconds, calls);
}

struct Speed {
  double milliseconds, flops, share;  // share: of the peak; 0: not known
};

Speed SpeedOf(const SlicedAttention& s, const GpuPeaks& peaks, bool backward) {
  double seconds = (backward ? s.backward : s.forward).seconds;
  double flops = s.sizes.operations() * (backward ? kBackwardCost : 1);
  double peak = s.dtype == "bf16" ? peaks.narrow : peaks.fp32;
  return {1e3 * seconds, flops / seconds,
          peak > 0 ? flops / seconds / peak : 0};
}

std::vector<std::string> CellsOf(const SlicedAttention& s,
                                 const GpuPeaks& peaks, bool backward) {
  if (s.backward.runs == 0)
    return {s.error.empty() ? "none" : "failed", "", ""};
  Speed speed = SpeedOf(s, peaks, backward);
  return {Number(speed.milliseconds, 4), Number(speed.flops / 1e12, 4),
          peaks.name ? Number(100 * speed.share, 3) : ""};
}

OrderedJson JsonOf(const SlicedAttention& s, const GpuPeaks& peaks) {
  OrderedJson row = {{"dtype", s.dtype},
                     {"head_size", s.sizes.head_size},
                     {"sequence", s.sizes.sequence},
                     {"batch", s.sizes.batch},
                     {"heads", s.sizes.heads},
                     {"slices", s.slices}};
  if (!s.error.empty()) row["error"] = s.error;
  if (!s.note.empty()) row["note"] = s.note;
  if (s.backward.runs == 0) return row;
  for (bool backward : {false, true}) {
    const std::string direction = backward ? "backward" : "forward";
    Speed speed = SpeedOf(s, peaks, backward);
    row[direction + "_ms"] = speed.milliseconds;
    row[direction + "_gflops"] = speed.flops / 1e9;
    if (peaks.name) row[direction + "_share"] = speed.share;
  }
  return row;
}

}  // namespace

void Measure(ExecutionProvider& provider, double seconds,
             SlicedAttention* one) {
  DType dtype = FloatNamed(one->dtype);
  CausalSizes slice = one->sizes;
  if (slice.batch % one->slices != 0) {
    one->note = Concat("a batch of ", slice.batch, " has no ", one->slices,
                       " equal slices");
    return;
  }
  slice.batch /= one->slices;
  try {
    one->forward = TimeOf(CausalAttention(slice, dtype), dtype, one->slices,
                          provider, seconds);
    one->backward = TimeOf(CausalAttentionGrad(slice, dtype), dtype,
                           one->slices, provider, seconds);
  } catch (const Error& error) {
    one->error = error.what();
  }
}

int64_t SlicedAttentionReport::Failed() const {
  return std::ranges::count_if(
      cases, [](const SlicedAttention& s) { return !s.error.empty(); });
}

void SlicedAttentionReport::Print(std::ostream& out) const {
  out << "causal attention (" << machine << "), gradients "
      << (nondeterministic ? "in any order" : "the same every time");
  if (peaks.name) out << "; %: of the peaks of " << TextOf(peaks);
  out << "\n";
  Table table({"dtype", "head size", "T", "heads", "batch", "slices",
               "forward ms", "TF/s", "%", "backward ms", "TF/s", "%"});
  for (const SlicedAttention& s : cases) {
    std::vector<std::string> row = {s.dtype};
    for (int64_t size : {s.sizes.head_size, s.sizes.sequence, s.sizes.heads,
                         s.sizes.batch, s.slices}) {
      row.push_back(std::to_string(size));
    }
    for (bool backward : {false, true}) {
      std::ranges::move(CellsOf(s, peaks, backward), std::back_inserter(row));
    }
    table.Row(row);
  }
  table.Print(out);
  for (const SlicedAttention& s : cases) {
    for (const std::string& text : {s.error, s.note}) {
      if (!text.empty())
        out << "  T " << s.sizes.sequence << ": " << Printable(text) << "\n";
    }
  }
}

OrderedJson SlicedAttentionReport::Json() const {
  OrderedJson report = {
      {"benchmark", "attention"}, {"provider", provider},
      {"machine", machine},       {"nondeterministic", nondeterministic},
      {"failed", Failed()},       {"cases", OrderedJson::array()}};
  for (const SlicedAttention& s : cases) {
    report["cases"].push_back(JsonOf(s, peaks));
  }
  return report;
}

}  // namespace onnx_fp8
