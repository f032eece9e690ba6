// SPDX-License-Identifier: Apache-2.0
#include "cli/report/profile_text.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "cli/report/text.h"

namespace onnx_fp8 {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostNodes = 20;  // in the text

// x / y, or 0 if there is nothing to divide by.
double Ratio(double x, double y) { return y > 0 ? x / y : 0; }

// Rates of one node, in thousand millions per second, and as shares of the
// speed that the machine reaches.
struct Rates {
  Rates(const NodeProfile& node, const MachinePeaks& peaks)
      : flops(Ratio(node.flops, node.milliseconds * 1e6)),
        bytes(Ratio(node.bytes, node.milliseconds * 1e6)),
        flops_share(Ratio(
            flops * 1e9, node.eight_bit ? peaks.eight_bit_flops : peaks.flops)),
        bytes_share(Ratio(bytes * 1e9, peaks.bytes)) {}

  double flops, bytes, flops_share, bytes_share;
};

// Nodes that ran beside others are in this sum, too.
double InNodes(const ProfileReport& report) {
  double sum = 0;
  for (const NodeProfile& node : report.nodes) sum += node.milliseconds;
  return sum;
}

}  // namespace

std::vector<ProfileGroup> GroupBy(const ProfileReport& report,
                                  std::string NodeProfile::*key) {
  std::map<std::string, ProfileGroup> groups;
  for (const NodeProfile& node : report.nodes) {
    ProfileGroup& group = groups[node.*key];
    group.key = node.*key;
    group.calls += node.calls;
    group.milliseconds += node.milliseconds;
  }
  std::vector<ProfileGroup> list;
  for (const auto& [name, group] : groups) list.push_back(group);
  std::ranges::stable_sort(list, std::greater<>(), &ProfileGroup::milliseconds);
  return list;
}

Json GroupsJson(const ProfileReport& report, const char* name,
                std::string NodeProfile::*key) {
  Json list = Json::array();
  for (const ProfileGroup& group : GroupBy(report, key)) {
    list.push_back({{name, group.key},
                    {"calls", group.calls},
                    {"ms", group.milliseconds},
                    {"share", Ratio(group.milliseconds, InNodes(report))}});
  }
  return list;
}

void PrintGroups(const ProfileReport& report, const char* name,
                 std::string NodeProfile::*key, std::ostream& out) {
  Table table({name, "nodes", "ms", "%"});
  for (const ProfileGroup& group : GroupBy(report, key)) {
    double share = Ratio(group.milliseconds, InNodes(report));
    table.Row({group.key, Number(group.calls), Fixed(group.milliseconds, 3),
               Fixed(100 * share, 1)});
  }
  out << "\n";
  table.Print(out);
}

Json ProfileJson(const ProfileReport& report, const MachinePeaks& peaks) {
  Json json = {{"steps", report.steps},
               {"cold", report.cold},
               {"ms", report.milliseconds},
               {"ms_in_nodes", InNodes(report)},
               {"peaks",
                {{"gflops", peaks.flops / 1e9},
                 {"fp8_gflops", peaks.eight_bit_flops / 1e9},
                 {"gbytes", peaks.bytes / 1e9}}}};
  if (report.transfers.all > 0) {
    json["communication"] = {{"ms", report.transfers.all},
                             {"hidden_ms", report.transfers.hidden()},
                             {"exposed_ms", report.transfers.exposed}};
  }
  json["roles"] = GroupsJson(report, "role", &NodeProfile::role);
  json["ops"] = GroupsJson(report, "op", &NodeProfile::op);
  json["nodes"] = Json::array();
  for (const NodeProfile& node : report.nodes) {
    Rates rates(node, peaks);
    json["nodes"].push_back({{"node", node.node},
                             {"op", node.op},
                             {"role", node.role},
                             {"fqn", node.fqn},
                             {"shape", node.shape},
                             {"calls", node.calls},
                             {"ms", node.milliseconds},
                             {"gflops", rates.flops},
                             {"flops_share", rates.flops_share},
                             {"gbytes", rates.bytes},
                             {"bytes_share", rates.bytes_share}});
  }
  return json;
}

void PrintProfile(const ProfileReport& report, const MachinePeaks& peaks,
                  std::ostream& out) {
  if (report.steps == 0) {
    out << "\nProfile: no step was run\n";
    return;
  }
  out << "\nProfile: " << Fixed(report.milliseconds, 2) << " ms a step, "
      << Fixed(InNodes(report) - report.transfers.hidden(), 2)
      << " of them in nodes, ";
  if (report.cold) {
    out << "of the first step alone: it also plans and finds cold caches\n";
  } else {
    out << "the mean of " << report.steps
        << " steps, without the first of the run\n";
  }
  if (report.transfers.all > 0) {
    out << "Communication: " << Fixed(report.transfers.all, 2) << " ms, "
        << Fixed(report.transfers.hidden(), 2)
        << " of them hidden behind other nodes; the step waited "
        << Fixed(report.transfers.exposed, 2) << "\n";
  }
  PrintGroups(report, "role", &NodeProfile::role, out);
  PrintGroups(report, "op", &NodeProfile::op, out);
  out << "\nLongest nodes. This machine reaches " << Fixed(peaks.flops / 1e9, 0)
      << " GF/s, " << Fixed(peaks.eight_bit_flops / 1e9, 0)
      << " on 8-bit floats, and " << Fixed(peaks.bytes / 1e9, 1)
      << " GB/s;\n%: of that; more than 100 % of GB/s comes out of caches\n";
  Table table(
      {"node", "role", "shape", "ms", "% of step", "GF/s", "%", "GB/s", "%"});
  for (size_t i = 0; i < std::min(report.nodes.size(), kMostNodes); ++i) {
    const NodeProfile& node = report.nodes[i];
    Rates rates(node, peaks);
    table.Row({node.node, node.role, node.shape, Fixed(node.milliseconds, 3),
               Fixed(100 * Ratio(node.milliseconds, InNodes(report)), 1),
               Fixed(rates.flops, 1), Fixed(100 * rates.flops_share, 0),
               Fixed(rates.bytes, 1), Fixed(100 * rates.bytes_share, 0)});
  }
  table.Print(out);
}

}  // namespace onnx_fp8
