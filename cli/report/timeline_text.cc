// SPDX-License-Identifier: Apache-2.0
#include "cli/report/timeline_text.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/printable.h"
#include "cli/report/text.h"

namespace onnx_fp8 {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kRowsOfNodes = 20;

std::string InMs(double milliseconds) { return Fixed(milliseconds, 3); }

void Add(const TimelineNode& row, TimelineNode* sum) {
  sum->node.calls += row.node.calls;
  sum->node.milliseconds += row.node.milliseconds;
  sum->least += row.least;
  sum->gap += row.gap;
  sum->beside += row.beside;
}

// One row for each role, longest first, with the role's sums.
std::vector<TimelineNode> RolesOf(const TimelineReport& report) {
  std::map<std::string, TimelineNode> roles;
  for (const TimelineNode& row : report.nodes) {
    TimelineNode& sum = roles[row.node.role];
    sum.node.role = row.node.role;
    Add(row, &sum);
  }
  std::vector<TimelineNode> list;
  for (const auto& [name, sum] : roles) list.push_back(sum);
  std::ranges::stable_sort(list, std::greater<>(), [](const TimelineNode& row) {
    return row.node.milliseconds;
  });
  return list;
}

Json RowJson(const TimelineNode& row, bool has_least) {
  Json json = {{"calls", row.node.calls}, {"ms", row.node.milliseconds}};
  if (has_least) json["least_ms"] = row.least;
  json["gap_ms"] = row.gap;
  json["beside_ms"] = row.beside;
  return json;
}

// A line of a table: `names`, and the row's figures.
std::vector<std::string> LineOf(std::vector<std::string> names,
                                const TimelineNode& row, bool has_least) {
  for (const std::string& cell :
       {Number(row.node.calls), has_least ? InMs(row.least) : "?",
        InMs(row.node.milliseconds), InMs(row.gap), InMs(row.beside)}) {
    names.push_back(cell);
  }
  return names;
}

void PrintRoles(const TimelineReport& report, std::ostream& out) {
  const bool has_least = !report.gpu.empty();
  Table table({"role", "kernels", "least ms", "ms", "gap ms", "beside ms"});
  TimelineNode all;
  for (const TimelineNode& row : RolesOf(report)) {
    table.Row(LineOf({row.node.role}, row, has_least));
    Add(row, &all);
  }
  table.Row(LineOf({"all"}, all, has_least));
  table.Print(out);
}

void PrintNodes(const TimelineReport& report, std::ostream& out) {
  Table table({"node", "role", "shape", "kernels", "least ms", "ms", "gap ms",
               "beside ms"});
  const size_t count = std::min(report.nodes.size(), kRowsOfNodes);
  for (size_t i = 0; i < count; ++i) {
    const TimelineNode& row = report.nodes[i];
    table.Row(LineOf({row.node.node, row.node.role, row.node.shape}, row,
                     !report.gpu.empty()));
  }
  table.Print(out);
}

}  // namespace

Json TimelineJson(const TimelineReport& report) {
  const bool has_least = !report.gpu.empty();
  Json json = {{"steps", report.steps},
               {"ms", report.milliseconds},
               {"host_ms", report.host},
               {"idle_ms", report.idle}};
  if (has_least) json["gpu"] = report.gpu;
  json["roles"] = Json::array();
  for (const TimelineNode& row : RolesOf(report)) {
    Json role = {{"role", row.node.role}};
    role.update(RowJson(row, has_least));
    json["roles"].push_back(std::move(role));
  }
  json["nodes"] = Json::array();
  for (const TimelineNode& row : report.nodes) {
    Json node = {{"node", row.node.node},
                 {"op", row.node.op},
                 {"role", row.node.role},
                 {"fqn", row.node.fqn},
                 {"shape", row.node.shape}};
    node.update(RowJson(row, has_least));
    json["nodes"].push_back(std::move(node));
  }
  json["notes"] = report.notes;
  return json;
}

void PrintTimeline(const TimelineReport& report, std::ostream& out) {
  if (report.steps > 0) {
    out << "\nTimeline: " << InMs(report.milliseconds)
        << " ms of the device a step, the mean of " << report.steps
        << "; between launches it is idle for " << InMs(report.idle)
        << "; the host starts a step in " << InMs(report.host) << "\n";
    out << "least: by the roofline"
        << (report.gpu.empty() ? ", for GPUs whose peaks are known"
                               : " of " + report.gpu)
        << "; gap: the device waits for the kernel; beside: another stream "
           "works, too\n\n";
    PrintRoles(report, out);
    out << "\n";
    PrintNodes(report, out);
  }
  for (const std::string& note : report.notes) {
    out << "  timeline: " << Printable(note) << "\n";
  }
}

}  // namespace onnx_fp8
