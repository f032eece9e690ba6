// SPDX-License-Identifier: Apache-2.0
//
// What a collective costs on a cluster: nodes of several GPUs, joined by a fast
// network within a node (NVLink) and a slower one between nodes.
#pragma once

#include <cstdint>
#include <string_view>

namespace onnx_fp8 {

// Bytes per second are per GPU and direction.
struct Network {
  int64_t node_gpus = 8;
  double node_bytes = 0;  // within a node
  double net_bytes = 0;   // between nodes
  // Seconds of a call, of a hop within a node and of one between nodes.
  double call = 0, node_hop = 0, net_hop = 0;
  // Share of the GPU's multiprocessors that a call takes from nodes beside it.
  double multiprocessors = 0;
};

// NCCL's own constants for rings and its protocol for long messages
// (src/graph/tuning.cc: 8.4, 3.4 and 14 µs), with nodes of 8 GPUs. A ring of
// Hopper GPUs gets 16 channels (src/graph/connect.cc), each on one of 132
// multiprocessors.
Network ClusterOf(double node_bytes, double net_bytes);

// A group of `ranks` GPUs, each `stride` GPUs after the one before.
struct GroupPlace {
  int64_t ranks = 1;
  int64_t stride = 1;
};

// The cost of one call. A rank receives `node_bytes` from GPUs of its node and
// `net_bytes` from other nodes.
struct RingCost {
  double node_bytes = 0;
  double net_bytes = 0;
  double seconds = 0;
  double latency = 0;  // part of `seconds` that the bytes do not change
};

// `op`: AllReduce, AllGather, ReduceScatter or Broadcast. `received`: the bytes
// that a rank receives (ReceivedBytes).
//
// The group has m ranks in a node, and so as many rings; each carries 1/m of
// the data through all N ranks and enters each node at another GPU. A rank is
// therefore reached over the network in one of its m rings. All groups of a
// mesh call at the same time. A call takes
//   call + hops · (mean time of a hop) + max(node_bytes / node bandwidth,
//                                            net_bytes / net bandwidth)
// with N − 1 hops, twice as many for AllReduce. (The α–β model: Thakur,
// Rabenseifner, Gropp, "Optimization of Collective Communication Operations in
// MPICH", 2005.) REQUIRES: op is one of these; group.ranks >= 1.
RingCost CostOfRing(std::string_view op, int64_t received,
                    const GroupPlace& group, const Network& network);

// Bytes that a rank receives in one call. N = `ranks` is the number of ranks,
// n = `count` the sum of the elements of all operands of the call, and
// `element` the bytes of one element. Received elements:
//   AllReduce      2 (N − 1) · n / N  (n is rounded up to N equal blocks)
//   AllGather      (N − 1) · n
//   ReduceScatter  (N − 1) · n / N
//   Broadcast      n  (on the root 0)
// One rank receives nothing. REQUIRES: op is one of these; ReduceScatter's n is
// a multiple of N.
int64_t ReceivedBytes(std::string_view op, int64_t count, int64_t element,
                      int64_t ranks);

}  // namespace onnx_fp8
