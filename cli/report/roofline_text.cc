// SPDX-License-Identifier: Apache-2.0
#include "cli/report/roofline_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/report/profile_text.h"
#include "cli/report/text.h"

namespace onnx_fp8 {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kListedNodes = 20;  // in the text

// Whether its bytes take the node's time.
bool IsBoundByMemory(const NodeProfile& node, const GpuPeaks& gpu) {
  return node.milliseconds <= 1e3 * (node.bytes / gpu.bytes);
}

double MemoryBound(const ProfileReport& bound, const GpuPeaks& gpu) {
  double sum = 0;
  for (const NodeProfile& node : bound.nodes) {
    if (IsBoundByMemory(node, gpu)) sum += node.milliseconds;
  }
  return sum;
}

}  // namespace

Json RooflineJson(const ProfileReport& bound, const GpuPeaks& gpu) {
  Json json = {{"gpu", gpu.name},
               {"ms", bound.milliseconds},
               {"ms_bound_by_memory", MemoryBound(bound, gpu)},
               {"peaks",
                {{"fp8_gflops", gpu.fp8 / 1e9},
                 {"narrow_gflops", gpu.narrow / 1e9},
                 {"fp32_gflops", gpu.fp32 / 1e9},
                 {"gbytes", gpu.bytes / 1e9}}}};
  json["roles"] = GroupsJson(bound, "role", &NodeProfile::role);
  json["ops"] = GroupsJson(bound, "op", &NodeProfile::op);
  json["nodes"] = Json::array();
  for (const NodeProfile& node : bound.nodes) {
    json["nodes"].push_back(
        {{"node", node.node},
         {"op", node.op},
         {"role", node.role},
         {"fqn", node.fqn},
         {"shape", node.shape},
         {"ms", node.milliseconds},
         {"flops", node.flops},
         {"bytes", node.bytes},
         {"bound", IsBoundByMemory(node, gpu) ? "memory" : "operations"}});
  }
  return json;
}

void PrintRoofline(const ProfileReport& bound, const GpuPeaks& gpu,
                   bool all_nodes, std::ostream& out) {
  double all = bound.milliseconds;
  double share = all > 0 ? 100 * MemoryBound(bound, gpu) / all : 0;
  out << "\nLeast time of a step on " << gpu.name << ": " << Number(all, 3)
      << " ms, " << Number(share, 3)
      << " % of it bound by memory. Peaks: " << gpu.fp8 / 1e12
      << " TF/s in FP8, " << gpu.narrow / 1e12 << " in 16 bits, "
      << gpu.fp32 / 1e12 << " in fp32; " << gpu.bytes / 1e12 << " TB/s\n";
  PrintGroups(bound, "role", &NodeProfile::role, out);
  PrintGroups(bound, "op", &NodeProfile::op, out);
  size_t listed = all_nodes ? bound.nodes.size()
                            : std::min(bound.nodes.size(), kListedNodes);
  out << (all_nodes ? "\nNodes, longest first\n" : "\nLongest nodes\n");
  Table table({"node", "role", "shape", "us", "Gflop", "MB", "bound by"});
  for (size_t i = 0; i < listed; ++i) {
    const NodeProfile& node = bound.nodes[i];
    table.Row({node.node, node.role, node.shape,
               Number(1e3 * node.milliseconds, 3), Number(node.flops / 1e9, 3),
               Number(node.bytes / 1e6, 3),
               IsBoundByMemory(node, gpu) ? "memory" : "operations"});
  }
  table.Print(out);
  if (listed == bound.nodes.size()) return;
  out << "  and " << bound.nodes.size() - listed
      << " shorter ones (--all-nodes lists them)\n";
}

}  // namespace onnx_fp8
