// SPDX-License-Identifier: Apache-2.0
#include "collectives/ring_cost.h"

#include <algorithm>

namespace onnx_fp8 {
Network ClusterOf(double node_bytes, double net_bytes) {
  return {.node_bytes = node_bytes,
          .net_bytes = net_bytes,
          .call = 8.4e-6,
          .node_hop = 3.4e-6,
          .net_hop = 14e-6,
          .multiprocessors = 16.0 / 132};
}

RingCost CostOfRing(std::string_view op, int64_t received,
                    const GroupPlace& group, const Network& network) {
  RingCost cost;
  if (group.ranks <= 1) return cost;
  const auto n = static_cast<double>(group.ranks);
  const int64_t in_node =
      std::clamp<int64_t>(network.node_gpus / group.stride, 1, group.ranks);
  const auto m = static_cast<double>(in_node);
  const int64_t nodes = (group.ranks + in_node - 1) / in_node;
  const auto bytes = static_cast<double>(received);
  cost.net_bytes = nodes > 1 ? bytes / m : 0;
  cost.node_bytes = bytes - cost.net_bytes;
  const double between = nodes > 1 ? static_cast<double>(nodes) / n : 0;
  const double hop =
      (1 - between) * network.node_hop + between * network.net_hop;
  const double hops = (op == "AllReduce" ? 2 : 1) * (n - 1);
  cost.latency = network.call + hops * hop;
  cost.seconds = cost.latency + std::max(cost.node_bytes / network.node_bytes,
                                         cost.net_bytes / network.net_bytes);
  return cost;
}

int64_t ReceivedBytes(std::string_view op, int64_t count, int64_t element,
                      int64_t ranks) {
  if (ranks == 1) return 0;
  const int64_t others = (ranks - 1) * element;
  if (op == "AllReduce") return 2 * others * ((count + ranks - 1) / ranks);
  if (op == "AllGather") return others * count;
  if (op == "ReduceScatter") return others * (count / ranks);
  return element * count;  // Broadcast
}

}  // namespace onnx_fp8
