// SPDX-License-Identifier: Apache-2.0
#include "providers/report/roofline.h"

#include <gtest/gtest.h>

#include "tests/graph/parse.h"

namespace onnx_fp8 {
namespace {

// A kernel that runs Reshape as a view.
const KernelRegistry& ReshapeAsView() {
  static const KernelRegistry kernels = [] {
    KernelRegistry r;
    r.Add("Reshape", [](KernelContext&) {}, {.view = true});
    return r;
  }();
  return kernels;
}

constexpr GpuPeaks kGpu = {"gpu", 4000, 2000, 1000, 100};

TEST(Roofline, TakesTheLongerTimeOfOperationsAndBytes) {
  auto graph = ParseGraph(R"(
input x: float[8,500]
input w: float[500,8]
const shape: int64[1] = {-1}
a: float[8,8] = MatMul(x, w)
b: float[8,8] = Neg(a)
c: float[64] = Reshape(b, shape)
output c
)");
  ProfileReport bound = Roofline(*graph, ReshapeAsView(), kGpu);
  ASSERT_EQ(bound.nodes.size(), 2u);  // a view takes no time
  double bytes = 4 * (8 * 500 * 2 + 64);
  EXPECT_EQ(bound.nodes[0].op, "MatMul");
  EXPECT_DOUBLE_EQ(bound.nodes[0].milliseconds, 1e3 * bytes / 100);
  EXPECT_DOUBLE_EQ(bound.nodes[1].milliseconds, 1e3 * 4 * 128 / 100);
  EXPECT_DOUBLE_EQ(bound.milliseconds, 1e3 * (bytes + 4 * 128) / 100);
  GpuPeaks fast = kGpu;
  fast.bytes = 1e9;
  bound = Roofline(*graph, ReshapeAsView(), fast);
  EXPECT_DOUBLE_EQ(bound.nodes[0].milliseconds, 1e3 * 2 * 8 * 8 * 500 / 1000.0);
}

// So many bytes go in each direction at once.
TEST(Roofline, MomentsOfTheHostCrossTheBus) {
  auto graph = ParseGraph(R"(
input x: float[8]
moment m: float[1000]
y: float[1000] = Neg(m)
z: float[1000] = Add(y, x)
output z
)");
  GpuPeaks gpu = kGpu;
  gpu.host_bytes = 10;
  auto node = graph->nodes().begin();
  EXPECT_EQ(HostBytesOf(*node), 0);
  EXPECT_DOUBLE_EQ(LeastMilliseconds(*node, gpu), 1e3 * 8000 / 100.0);
  graph->Find("m")->on_host = true;
  EXPECT_EQ(HostBytesOf(*node), 4000);
  EXPECT_DOUBLE_EQ(LeastMilliseconds(*node, gpu), 1e3 * 4000 / 10.0);
  EXPECT_DOUBLE_EQ(SecondsOf(*node, gpu, {.memory = 0.5}), 4000 / (0.5 * 10));
  const ProfileReport bound = Roofline(*graph, ReshapeAsView(), gpu);
  EXPECT_EQ(bound.nodes[0].host_bytes, 4000);
  gpu.host_bytes = 1e9;  // the other bytes take no time, its operations do
  EXPECT_DOUBLE_EQ(LeastMilliseconds(*node, gpu), 1e3 * 1000 / 1000.0);
  EXPECT_EQ(HostBytesOf(*++node), 0);
  for (const GpuPeaks& known : KnownGpus()) EXPECT_EQ(known.host_bytes, 64e9);
}

// A product has 2 · 8 · 8 · 16 operations and a result of 4 · 8 · 8 bytes.
// Tensor cores multiply by the scales of MX formats themselves.
TEST(Roofline, KindsOfWorkReachSharesOfTheirPeaks) {
  auto graph = ParseGraph(R"(
input q: float8e4m3fn[8,16]
input s: float[]
input rows: float[8,1]
input blocks: float[8,2]
input mx: float8e8m0[8,2]
a: float[8,8] = onnx_fp8.ScaledMatMul<transA=0, transB=1>(q, s, q, s)
b: float[8,8] = onnx_fp8.ScaledMatMulBlock<transA=0, transB=1, a_block_rows=1, a_block_columns=0, b_block_rows=1, b_block_columns=0>(q, rows, q, rows)
c: float[8,8] = onnx_fp8.ScaledMatMulBlock<transA=0, transB=1, a_block_rows=1, a_block_columns=8, b_block_rows=1, b_block_columns=8>(q, blocks, q, blocks)
d: float[8,8] = onnx_fp8.ScaledMatMulBlock<transA=0, transB=1, a_block_rows=1, a_block_columns=8, b_block_rows=1, b_block_columns=8>(q, mx, q, mx)
output a
)");
  GpuPeaks gpu = kGpu;
  gpu.bytes = 1e3;
  const Efficiency shares = {.fp8 = 0.25, .blocks = 0.125, .memory = 0.5};
  auto node = graph->nodes().begin();
  const double flops = 2 * 8 * 8 * 16, result = 4 * 8 * 8 / (0.5 * 1e3);
  EXPECT_DOUBLE_EQ(SecondsOf(*node, gpu, shares), flops / 1000 + result);
  EXPECT_DOUBLE_EQ(SecondsOf(*++node, gpu, shares), flops / 1000 + result);
  EXPECT_DOUBLE_EQ(SecondsOf(*++node, gpu, shares), flops / 500 + result);
  EXPECT_DOUBLE_EQ(SecondsOf(*++node, gpu, shares), flops / 1000 + result);
}

TEST(Roofline, AttentionOfSmallHeadsTakesAsLongForAScore) {
  auto seconds = [](const std::string& width) {
    auto graph = ParseGraph(
        "input x: float[1,4," + width + R"(]
y: float[1,4,)" +
        width +
        R"(], lse: float[1,1,4] = onnx_fp8.Attention<heads=1, kv_heads=1, scale=1.0, causal=0>(x, x, x)
output y
)");
    GpuPeaks gpu = kGpu;
    gpu.bytes = 1e30;
    return SecondsOf(*graph->nodes().begin(), gpu, {.attention = 0.5});
  };
  // 4 · 4 scores, of 4 operations for each number of a head.
  EXPECT_DOUBLE_EQ(seconds("128"), 16 * 4 * 128 / (0.5 * 1000));
  EXPECT_DOUBLE_EQ(seconds("64"), seconds("128"));
  EXPECT_DOUBLE_EQ(seconds("256"), 2 * seconds("128"));
}

TEST(Roofline, QuantizersHaveAShareOfTheMemory) {
  auto graph = ParseGraph(R"(
input x: float[8,16]
q: float8e4m3fn[8,16], s: float[] = onnx_fp8.QuantizeTensor<q_max=448.0, to=17>(x)
r: float8e4m3fn[8,16], t: float[] = onnx_fp8.QuantizeWith<q_max=448.0, to=17>(x, s)
output r
)");
  const double bytes = (4 + 1) * 8 * 16;
  const Efficiency shares = {.memory = 0.5, .quantizing = 0.25};
  auto node = graph->nodes().begin();
  EXPECT_DOUBLE_EQ(SecondsOf(*node, kGpu, shares), (bytes + 4) / (0.25 * 100));
  EXPECT_DOUBLE_EQ(SecondsOf(*++node, kGpu, shares), (bytes + 8) / (0.5 * 100));
}

TEST(Roofline, DriversNamesOfGpus) {
  auto found = [](const char* device) {
    const GpuPeaks* gpu = FindGpu(device);
    return gpu ? gpu->name : "";
  };
  for (const GpuPeaks& gpu : KnownGpus()) EXPECT_EQ(FindGpu(gpu.name), &gpu);
  EXPECT_STREQ(found("NVIDIA H100 80GB HBM3 (sm_90)"), "h100");
  EXPECT_STREQ(found("NVIDIA H200"), "h200");
  EXPECT_STREQ(found("NVIDIA B200"), "b200");
  for (const char* other :
       {"", "NVIDIA GB200", "NVIDIA H100 PCIe", "NVIDIA H200 NVL",
        "NVIDIA H100 80GB HBM3 MIG 1g.10gb", "NVIDIA GH200 480GB"}) {
    EXPECT_STREQ(found(other), "") << other;
  }
}

TEST(Roofline, OperandsDecideThePeak) {
  auto graph = ParseGraph(R"(
input x: float[8,16]
input w: float[16,8]
input q: float8e4m3fn[8,16]
input s: float[]
a: float[8,8] = MatMul(x, w)
b: float[8,8] = onnx_fp8.ScaledMatMul<transA=0, transB=1>(q, s, q, s)
c: float[8,16] = Neg(x)
output a
)");
  auto node = graph->nodes().begin();
  EXPECT_EQ(PeakOf(*node, kGpu), kGpu.fp32);
  node->in(0)->narrow = DType::kBFloat16;
  EXPECT_EQ(PeakOf(*node, kGpu), kGpu.narrow);
  EXPECT_EQ(PeakOf(*++node, kGpu), kGpu.fp8);
  EXPECT_EQ(PeakOf(*++node, kGpu), kGpu.fp32);  // no product
}

}  // namespace
}  // namespace onnx_fp8
