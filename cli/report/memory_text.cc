// SPDX-License-Identifier: Apache-2.0
#include "cli/report/memory_text.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

#include "base/printable.h"
#include "cli/report/text.h"

namespace onnx_fp8 {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostValues = 20;  // in the text

// State first, then the kinds that lie in the arena.
constexpr MemoryKind kOrder[] = {MemoryKind::kParameter,
                                 MemoryKind::kOptimizerState,
                                 MemoryKind::kFp8State,
                                 MemoryKind::kConstant,
                                 MemoryKind::kInput,
                                 MemoryKind::kOutput,
                                 MemoryKind::kSavedActivation,
                                 MemoryKind::kFp8Copy,
                                 MemoryKind::kParameterGradient,
                                 MemoryKind::kActivationGradient,
                                 MemoryKind::kTemporary,
                                 MemoryKind::kWorkspace};
static_assert(std::size(kOrder) == kMemoryKinds);

// "FP8 copies" → "fp8_copies".
std::string Key(MemoryKind kind) {
  std::string key = Name(kind);
  for (char& c : key) {
    c = c == ' ' ? '_' : static_cast<char>(std::tolower(c));
  }
  return key;
}

// The bytes of values that the plan does not place in an arena.
size_t OutsideArenas(const MemoryReport& report) {
  size_t all = 0;
  for (const LiveValue& value : report.live) all += value.bytes;
  return all - std::min(all, report.in_arena_bytes);
}

std::string Maker(const LiveValue& value) {
  std::string text = value.node;
  if (!value.role.empty()) text += ", " + value.role;
  if (!value.fqn.empty()) text += ", " + value.fqn;
  return text;
}

}  // namespace

size_t ProcessMemory::Other(const MemoryReport& report) const {
  size_t known = OutsideArenas(report) + arenas;
  return peak - std::min(peak, known);
}

Json MemoryJson(const MemoryReport& report,
                const std::optional<ProcessMemory>& process) {
  Json json = {{"node", report.node},
               {"step", report.step},
               {"steps", report.steps},
               {"kinds", Json::object()}};
  for (MemoryKind kind : kOrder) json["kinds"][Key(kind)] = report.Total(kind);
  json["arena_bytes"] = report.arena_bytes;
  json["arena_live_bytes"] = report.live_bytes;
  json["gradients_held_bytes"] = report.gradients_held_bytes;
  if (process) {
    json["peak_bytes"] = process->peak;
    json["other_bytes"] = process->Other(report);
  }
  json["values"] = Json::array();
  for (const LiveValue& value : report.live) {
    json["values"].push_back({{"kind", Key(value.kind)},
                              {"name", value.name},
                              {"type", value.type},
                              {"bytes", value.bytes},
                              {"node", value.node},
                              {"op", value.op},
                              {"role", value.role},
                              {"fqn", value.fqn},
                              {"last_reader", value.last_reader}});
  }
  return json;
}

void PrintMemoryReport(const MemoryReport& report,
                       const std::optional<ProcessMemory>& process,
                       std::ostream& out) {
  out << "\nMemory where the step needs most of it";
  if (!report.node.empty()) {
    out << ": node " << report.step << " of " << report.steps << ", "
        << Printable(report.node);
  }
  out << "\n";
  Table kinds({"what lives there", "size"});
  size_t all = 0;
  for (MemoryKind kind : kOrder) {
    size_t bytes = report.Total(kind);
    all += bytes;
    if (bytes > 0) kinds.Row({Name(kind), ByteText(bytes)});
  }
  kinds.Row({"all", ByteText(all)});
  kinds.Row({"arena in use", ByteText(report.live_bytes)});
  kinds.Row({"arena", ByteText(report.arena_bytes)});
  if (process) {
    kinds.Row({"other", ByteText(process->Other(report))});
    kinds.Row({"peak of the process", ByteText(process->peak)});
  }
  kinds.Print(out);
  if (report.gradients_held_bytes > 0) {
    out << "\n  Gradients of parameters, "
        << ByteText(report.gradients_held_bytes)
        << ", all wait for the last: whether the step is skipped as not "
           "finite, and\n  how much it is clipped, depends on all of them. "
           "Each goes with its update.\n";
  }
  out << "\nLargest values there\n";
  Table table({"size", "kind", "value", "made by", "last read by"});
  for (size_t i = 0; i < std::min(report.live.size(), kMostValues); ++i) {
    const LiveValue& value = report.live[i];
    table.Row({ByteText(value.bytes), Name(value.kind),
               value.name + " " + value.type, Maker(value), value.last_reader});
  }
  table.Print(out);
}

}  // namespace onnx_fp8
