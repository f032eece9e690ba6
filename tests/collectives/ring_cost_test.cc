// SPDX-License-Identifier: Apache-2.0
#include "collectives/ring_cost.h"

#include <gtest/gtest.h>

namespace onnx_fp8 {
namespace {

// Nodes of 4 GPUs; 100 bytes per second within a node, 10 between nodes.
constexpr Network kNetwork = {.node_gpus = 4,
                              .node_bytes = 100,
                              .net_bytes = 10,
                              .call = 3,
                              .node_hop = 0.5,
                              .net_hop = 2};

// With an operand of `bytes`.
RingCost Cost(std::string_view op, int64_t bytes, const GroupPlace& group) {
  return CostOfRing(op, ReceivedBytes(op, bytes, 1, group.ranks), group,
                    kNetwork);
}

TEST(ReceivedBytes, AllReduceRoundsUpToBlocks) {
  EXPECT_EQ(ReceivedBytes("AllReduce", 10, 4, 4), 2 * 3 * 3 * 4);
  EXPECT_EQ(ReceivedBytes("AllGather", 10, 4, 4), 3 * 10 * 4);
  EXPECT_EQ(ReceivedBytes("ReduceScatter", 12, 4, 4), 3 * 3 * 4);
  EXPECT_EQ(ReceivedBytes("Broadcast", 10, 4, 4), 40);
  EXPECT_EQ(ReceivedBytes("AllReduce", 10, 4, 1), 0);
}

TEST(RingCost, WithinANode) {
  // Each of 4 ranks receives 3/4 of 800 bytes, in 3 hops.
  RingCost scatter = Cost("ReduceScatter", 800, {4, 1});
  EXPECT_DOUBLE_EQ(scatter.node_bytes, 600);
  EXPECT_EQ(scatter.net_bytes, 0);
  EXPECT_DOUBLE_EQ(scatter.seconds, 3 + 3 * 0.5 + 6);
  RingCost all = Cost("AllReduce", 800, {4, 1});
  EXPECT_DOUBLE_EQ(all.node_bytes, 1200);
  EXPECT_DOUBLE_EQ(all.seconds, 3 + 6 * 0.5 + 12);
  // The operand of a gather is one part.
  RingCost gather = Cost("AllGather", 200, {4, 1});
  EXPECT_DOUBLE_EQ(gather.node_bytes, 600);
  EXPECT_DOUBLE_EQ(gather.seconds, scatter.seconds);
  EXPECT_DOUBLE_EQ(Cost("Broadcast", 200, {4, 1}).node_bytes, 200);
}

TEST(RingCost, SeveralNodes) {
  // 8 ranks on 2 nodes: 7 · 40 bytes arrive, a quarter of them by the network,
  // because 4 rings enter a node at its 4 GPUs. Of the 8 hops of a ring, 2 are
  // between nodes.
  RingCost gather = Cost("AllGather", 40, {8, 1});
  EXPECT_DOUBLE_EQ(gather.net_bytes, 70);
  EXPECT_DOUBLE_EQ(gather.node_bytes, 210);
  EXPECT_DOUBLE_EQ(gather.seconds, 3 + 7 * (0.75 * 0.5 + 0.25 * 2) + 7);
}

TEST(RingCost, GroupsBetweenNodes) {
  // Every second GPU: two of a node are in the group.
  RingCost half = Cost("AllGather", 40, {4, 2});
  EXPECT_DOUBLE_EQ(half.net_bytes, 60);
  EXPECT_DOUBLE_EQ(half.node_bytes, 60);
  // One of each node: all bytes are from other nodes.
  RingCost one = Cost("AllGather", 40, {4, 4});
  EXPECT_DOUBLE_EQ(one.net_bytes, 120);
  EXPECT_EQ(one.node_bytes, 0);
  EXPECT_DOUBLE_EQ(one.seconds, 3 + 3 * 2 + 12);
}

TEST(RingCost, OneRankSendsNothing) {
  RingCost cost = Cost("AllReduce", 800, {1, 1});
  EXPECT_EQ(cost.node_bytes + cost.net_bytes + cost.seconds, 0);
}

}  // namespace
}  // namespace onnx_fp8
