// SPDX-License-Identifier: Apache-2.0
#include "providers/report/timeline.h"

#include <gtest/gtest.h>

#include "providers/cpu/cpu_provider.h"
#include "tests/graph/parse.h"

namespace onnx_fp8 {
namespace {

// One operation and one byte per second, at their full peaks; a call takes a
// second and the bytes nothing.
Cluster UnitCluster() {
  return {.gpu = {"gpu", 1, 1, 1, 1e30},
          .efficiency = {.products = 1,
                         .fp8 = 1,
                         .blocks = 1,
                         .attention = 1,
                         .attention_grad = 1,
                         .memory = 1,
                         .quantizing = 1},
          .network = {.node_gpus = 8,
                      .node_bytes = 1e30,
                      .net_bytes = 1e30,
                      .call = 1},
          .start = 0};
}

Timeline TimelineOf(const std::string& text, const Cluster& cluster,
                    const char* seed = "") {
  auto graph = ParseGraph(text);
  Plan plan = MakePlan(*graph, CpuKernels());
  return Simulate(plan, cluster, graph->Find(seed));
}

// A call of 5 s beside a product of 2 · 2 · 2 · 2 = 16 s.
constexpr char kBeside[] = R"(
input x: float[2,2]
input w: float[2,2]
g: float[2,2] = onnx_fp8.AllReduce<group="dp", ranks=2, reduction="sum">(w)
a: float[2,2] = MatMul(x, x)
y: float[2,2] = MatMul(a, g)
output y
)";

TEST(Timeline, HidesACallBehindAProduct) {
  Cluster cluster = UnitCluster();
  cluster.network.call = 5;
  Timeline time = TimelineOf(kBeside, cluster);
  EXPECT_DOUBLE_EQ(time.compute, 32);
  EXPECT_DOUBLE_EQ(time.communication, 5);
  EXPECT_DOUBLE_EQ(time.step, 32);
  EXPECT_EQ(time.exposed, 0);
  EXPECT_DOUBLE_EQ(time.model_flops, 32);
  ASSERT_EQ(time.work.size(), 1u);
  EXPECT_EQ(time.work[0].nodes, 2);
}

// Half of the GPU is left for the first product while the call runs: 2.5 s of
// its 16 are done after 5 s.
TEST(Timeline, NodesBesideACallAreSlower) {
  Cluster cluster = UnitCluster();
  cluster.network.call = 5;
  cluster.network.multiprocessors = 0.5;
  Timeline time = TimelineOf(kBeside, cluster);
  EXPECT_DOUBLE_EQ(time.compute, 32);
  EXPECT_DOUBLE_EQ(time.step, 5 + (16 - 2.5) + 16);
  EXPECT_DOUBLE_EQ(time.exposed, 2.5);
  cluster.network.call = 40;  // the first product ends before the call
  time = TimelineOf(kBeside, cluster);
  EXPECT_DOUBLE_EQ(time.step, 40 + 16);
}

TEST(Timeline, EachNodeTakesTimeToStart) {
  Cluster cluster = UnitCluster();
  cluster.start = 3;
  EXPECT_DOUBLE_EQ(TimelineOf(kBeside, cluster).step, 2 * (3 + 16));
}

TEST(Timeline, AReaderWaits) {
  Cluster cluster = UnitCluster();
  cluster.network.call = 20;
  Timeline time = TimelineOf(kBeside, cluster);
  EXPECT_DOUBLE_EQ(time.step, 20 + 16);
  EXPECT_DOUBLE_EQ(time.exposed, 4);
}

// The second call waits for the first and for the product before it; the view
// of a collective's result is its result.
TEST(Timeline, CallsFollowEachOther) {
  Cluster cluster = UnitCluster();
  cluster.network.call = 10;
  Timeline time = TimelineOf(R"(
input x: float[2,2]
input w: float[2,2]
const shape: int64[1] = {4}
g: float[2,2] = onnx_fp8.AllReduce<group="dp", ranks=2, reduction="sum">(w)
a: float[2,2] = MatMul(x, x)
h: float[2,2] = onnx_fp8.AllReduce<group="dp", ranks=2, reduction="sum">(a)
v: float[4] = Reshape(h, shape)
y: float[4] = Neg(v)
output y
output g
)",
                             cluster);
  EXPECT_DOUBLE_EQ(time.communication, 20);
  EXPECT_DOUBLE_EQ(time.compute, 16 + 4);
  EXPECT_DOUBLE_EQ(time.step, 16 + 10 + 4);
  ASSERT_EQ(time.collectives.size(), 1u);
  EXPECT_EQ(time.collectives[0].calls, 2);
  EXPECT_DOUBLE_EQ(time.collectives[0].node_bytes, 2 * 16);
}

// A collective does not run ahead of the plan, though its operand is ready.
TEST(Timeline, KeepsThePlansOrder) {
  Timeline time = TimelineOf(R"(
input x: float[2,2]
a: float[2,2] = MatMul(x, x)
h: float[2,2] = onnx_fp8.AllReduce<group="dp", ranks=2, reduction="sum">(x)
output a
output h
)",
                             UnitCluster());
  EXPECT_DOUBLE_EQ(time.step, 16 + 1);
}

// Two collectives of a bucket are one call.
TEST(Timeline, ABucketIsOneCall) {
  Timeline time = TimelineOf(R"(
input x: float[2,2]
input w: float[2,2]
g: float[2,2] = onnx_fp8.AllReduce<bucket=1, group="dp", ranks=2, reduction="sum">(x)
h: float[2,2] = onnx_fp8.AllReduce<bucket=1, group="dp", ranks=2, reduction="sum">(w)
output g
output h
)",
                             UnitCluster());
  EXPECT_DOUBLE_EQ(time.step, 1);
  ASSERT_EQ(time.collectives.size(), 1u);
  EXPECT_EQ(time.collectives[0].calls, 1);
  EXPECT_DOUBLE_EQ(time.collectives[0].node_bytes, 2 * 16);
}

// 16 bytes for each gather, at a byte per second. The reader of the first
// result waits for the whole call.
TEST(Timeline, ResultsOfACallArriveTogether) {
  Cluster cluster = UnitCluster();
  cluster.network.node_bytes = 1;
  Timeline time = TimelineOf(R"(
input x: float[2,2]
a: float[4,2] = onnx_fp8.AllGather<bucket=1, group="dp", ranks=2>(x)
b: float[4,2] = onnx_fp8.AllGather<bucket=1, group="dp", ranks=2>(x)
y: float[4,2] = Neg(a)
output b
output y
)",
                             cluster);
  EXPECT_DOUBLE_EQ(time.step, 1 + 16 + 16 + 8);
}

// A ring of 512 ranks has 511 hops in each call, whatever number of tensors the
// call has and of which dtypes.
TEST(Timeline, ALongRingPaysPerBucket) {
  Cluster cluster = UnitCluster();
  cluster.network.node_hop = cluster.network.net_hop = 1;
  Timeline time = TimelineOf(R"(
input x: float[2]
input codes: float8e4m3fn[2]
a: float[1024] = onnx_fp8.AllGather<bucket=1, group="dp", ranks=512>(x)
b: float8e4m3fn[1024] = onnx_fp8.AllGather<bucket=1, group="dp", ranks=512>(codes)
c: float[1024] = onnx_fp8.AllGather<bucket=1, group="dp", ranks=512>(x)
d: float[1024] = onnx_fp8.AllGather<group="dp", ranks=512>(x)
output a
output b
output c
output d
)",
                             cluster);
  EXPECT_DOUBLE_EQ(time.step, 2 * (1 + 511));
  ASSERT_EQ(time.collectives.size(), 1u);
  EXPECT_EQ(time.collectives[0].calls, 2);
  EXPECT_DOUBLE_EQ(
      time.collectives[0].node_bytes + time.collectives[0].net_bytes,
      511 * (8 + 2 + 8 + 8));
}

// The plan of a device on which all moments lie in the host's memory, whose
// bytes take `seconds` each.
Timeline OffloadedTimeline(const std::string& text, double seconds) {
  auto graph = ParseGraph(text);
  for (Value* value : graph->Initializers()) {
    value->on_host = value->role == Role::kMoment;
  }
  Cluster cluster = UnitCluster();
  cluster.gpu.host_bytes = 1 / seconds;
  const Plan plan = MakePlan(*graph, CpuKernels(), Device::kProvider);
  return Simulate(plan, cluster, nullptr);
}

// An update of 16 bytes begins after 4 s, beside nodes of 16 s and of 4 s.
TEST(Timeline, HidesUpdatesBehindOtherNodes) {
  constexpr char kUpdate[] = R"(
input x: float[2,2]
moment m: float[2,2]
g: float[2,2] = Neg(x)
next: float[2,2] = Add(m, g)
a: float[2,2] = MatMul(x, x)
y: float[2,2] = Neg(a)
output y
update m = next
)";
  Timeline time = OffloadedTimeline(kUpdate, 1);
  EXPECT_DOUBLE_EQ(time.host_bytes, 16);
  EXPECT_DOUBLE_EQ(time.compute, 4 + 16 + 4);
  EXPECT_DOUBLE_EQ(time.updates, 16);
  EXPECT_DOUBLE_EQ(time.step, 24);
  EXPECT_DOUBLE_EQ(time.exposed_updates, 0);
  time = OffloadedTimeline(kUpdate, 2);
  EXPECT_DOUBLE_EQ(time.updates, 32);
  EXPECT_DOUBLE_EQ(time.step, 4 + 32);
  EXPECT_DOUBLE_EQ(time.exposed_updates, 12);
  EXPECT_DOUBLE_EQ(time.exposed, 0);
}

// The third update begins when the first one is done, and so does the product
// behind it. The last one ends after the product.
TEST(Timeline, TwoUpdatesAreUnderWay) {
  const Timeline time = OffloadedTimeline(R"(
input x: float[2,2]
moment m: float[2,2]
moment n: float[2,2]
moment o: float[2,2]
m1: float[2,2] = Add(m, x)
n1: float[2,2] = Add(n, x)
o1: float[2,2] = Add(o, x)
y: float[2,2] = MatMul(x, x)
output y
update m = m1
update n = n1
update o = o1
)",
                                          1);
  EXPECT_DOUBLE_EQ(time.step, 3 * 16);
  EXPECT_DOUBLE_EQ(time.compute, 16);
  EXPECT_DOUBLE_EQ(time.exposed_updates, 16 + 16);
  EXPECT_DOUBLE_EQ(time.exposed, 0);
}

TEST(Timeline, TheForwardEndsAtTheSeed) {
  Timeline time = TimelineOf(R"(
input x: float[2,2]
input seed: float[2,2]
y: float[2,2] = MatMul(x, x)
d: float[2,2] = MatMul(seed, y)
output d
)",
                             UnitCluster(), "seed");
  EXPECT_DOUBLE_EQ(time.forward, 16);
  EXPECT_DOUBLE_EQ(time.compute, 32);
}

TEST(Timeline, StridesPlaceGroups) {
  Cluster cluster = UnitCluster();
  cluster.strides = {{"dp", 8}};
  Timeline time = TimelineOf(kBeside, cluster);
  EXPECT_EQ(time.collectives[0].node_bytes, 0);
  EXPECT_DOUBLE_EQ(time.collectives[0].net_bytes, 16);
}

}  // namespace
}  // namespace onnx_fp8
