// SPDX-License-Identifier: Apache-2.0
#include "providers/run/wire_bytes.h"

#include "collectives/received_bytes.h"
#include "graph/op_facts.h"

namespace onnx_fp8 {

std::map<std::string, WireBytes> WireBytesOf(const Plan& plan) {
  std::map<std::string, WireBytes> all;
  for (size_t i = 0; i < plan.steps.size(); i += plan.steps[i].together) {
    const Node& node = *plan.steps[i].node;
    if (FactsOf(node).kind != OpKind::kCollective) continue;
    int64_t count = 0;  // of all operands of the call
    for (size_t j = i; j < i + plan.steps[i].together; ++j) {
      count += NumElements(*plan.steps[j].node->in(0)->shape);
    }
    const auto element = static_cast<int64_t>(ByteSize(StoredAs(*node.in(0))));
    const int64_t received =
        ReceivedBytes(node.op, count, element, node.Int("ranks", 1));
    WireBytes& bytes = all[node.String("group", "")];
    if (node.IsOurs("AllReduce")) bytes.all_reduce += received;
    if (node.IsOurs("AllGather")) bytes.all_gather += received;
    if (node.IsOurs("ReduceScatter")) bytes.reduce_scatter += received;
  }
  return all;
}

}  // namespace onnx_fp8
