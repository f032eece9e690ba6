// SPDX-License-Identifier: Apache-2.0
#include "providers/passes/fuse_quantize.h"

#include <gtest/gtest.h>

#include "graph/onnx/verify.h"
#include "graph/print.h"
#include "graph/schemas/fused_quantize.h"
#include "providers/cpu/cpu_provider.h"
#include "tests/graph/parse.h"

namespace onnx_fp8 {
namespace {

// The CPU's kernels and all that quantize their results.
KernelRegistry KernelsThatQuantize() {
  KernelRegistry kernels = CpuKernels();
  for (const FusedQuantizer& row : FusedQuantizers()) {
    kernels.Add(
        row.op, [](KernelContext&) {}, {}, kDomain);
  }
  return kernels;
}

constexpr char kFusingInputs[] = R"(graph "g" opset 24
input x: float[2,16,32]
input g: float[2,16,32]
input w: float[32]
input s: float[]
input z: float[]
)";

std::string AfterFusing(const std::string& text,
                        const KernelRegistry& kernels) {
  auto graph = ParseGraph(kFusingInputs + text);
  FuseQuantize(*graph, kernels);
  Verify(*graph);
  std::string after = Print(*graph);
  return after.substr(std::string(kFusingInputs).size());
}

void ExpectFused(const std::string& before, const std::string& after) {
  EXPECT_EQ(AfterFusing(before, KernelsThatQuantize()), after);
}

void ExpectNotFused(const std::string& text) { ExpectFused(text, text); }

constexpr char kSilu[] =
    R"(y: float[2,16,32] = onnx_fp8.Silu(x)
q: float8e4m3fn[2,16,32], qs: float[], a: float[] = onnx_fp8.QuantizeWith<q_max=448.0, to=17>(y, s)
output q
output qs
output a
)";

TEST(FuseQuantize, NobodyElseReadsTheFloats) {
  ExpectFused(
      kSilu,
      R"(_, q: float8e4m3fn[2,16,32], qs: float[], a: float[] = onnx_fp8.SiluQuantize<q_max=448.0, round_to=1, to=17>(x, s)
output q
output qs
output a
)");
}

TEST(FuseQuantize, AProviderWithoutSuchKernelsKeepsItsGraph) {
  EXPECT_EQ(AfterFusing(kSilu, CpuKernels()), kSilu);
}

TEST(FuseQuantize, OtherReadersKeepTheFloats) {
  ExpectFused(
      R"(y: float[2,16,32] = Relu(x)
q: float8e4m3fn[2,16,32], qs: float[], a: float[] = onnx_fp8.QuantizeWith<q_max=448.0, to=17>(y, s)
n: float[2,16,32] = Neg(y)
output q
output n
)",
      R"(y: float[2,16,32], q: float8e4m3fn[2,16,32], qs: float[], a: float[] = onnx_fp8.ReluQuantize<q_max=448.0, round_to=1, to=17>(x, s)
n: float[2,16,32] = Neg(y)
output q
output n
)");
  std::string returned = std::string(kSilu) + "output y\n";
  EXPECT_EQ(AfterFusing(returned, KernelsThatQuantize())
                .find("y: float[2,16,32], q:"),
            0);
}

// The codes of a view are a view of the codes.
TEST(FuseQuantize, LooksThroughViews) {
  ExpectFused(
      R"(const sizes: int64[2] = {32,32}
y: float[2,16,32] = Gelu<approximate="tanh">(x)
m: float[32,32] = Reshape(y, sizes)
q: float8e5m2[32,32], qs: float[], a: float[], t: float8e5m2[32,32] = onnx_fp8.QuantizeWithTranspose<q_max=57344.0, to=19>(m, s)
output q
output t
)",
      R"(const sizes: int64[2] = {32,32}
const "const.int64[2] 32 32": int64[2] = {32,32}
_, q_1: float8e5m2[2,16,32], qs: float[], a: float[], t: float8e5m2[32,32] = onnx_fp8.GeluTanhQuantize<q_max=57344.0, round_to=1, to=19>(x, s)
q: float8e5m2[32,32] = Reshape<allowzero=1>(q_1, "const.int64[2] 32 32")
output q
output t
)");
}

// Codes with zeros are a matrix, whatever view of the result they are made of.
TEST(FuseQuantize, TheProducerAddsTheZeros) {
  ExpectFused(
      R"(const sizes: int64[2] = {32,32}
y: float[2,16,32] = onnx_fp8.RMSNorm<axis=-1, epsilon=1e-05>(x, w)
m: float[32,32] = Reshape(y, sizes)
q: float8e4m3fn[32,32], qs: float[], a: float[], t: float8e4m3fn[32,32] = onnx_fp8.QuantizeWithPadded<q_max=448.0, to=17>(m, s)
output q
output t
)",
      R"(const sizes: int64[2] = {32,32}
_, q: float8e4m3fn[32,32], qs: float[], a: float[], t: float8e4m3fn[32,32] = onnx_fp8.RMSNormQuantizePadded<axis=-1, epsilon=1e-05, q_max=448.0, round_to=1, to=17>(x, w, s)
output q
output t
)");
}

TEST(FuseQuantize, ZerosAreThoseOfTheProducersRows) {
  ExpectNotFused(R"(const sizes: int64[2] = {64,16}
y: float[2,16,32] = Relu(x)
m: float[64,16] = Reshape(y, sizes)
q: float8e4m3fn[64,16], qs: float[], a: float[] = onnx_fp8.QuantizeWithPadded<q_max=448.0, to=17>(m, s)
output q
)");
  ExpectNotFused(R"(const wide: float[16,32]
y: float[2,16,32] = onnx_fp8.RMSNorm<axis=1, epsilon=1e-05>(x, wide)
q: float8e4m3fn[32,32], qs: float[], a: float[] = onnx_fp8.QuantizeWithPadded<q_max=448.0, to=17>(y, s)
output q
)");
}

// A matrix with other columns has another transpose.
TEST(FuseQuantize, AViewWithOtherColumnsKeepsItsQuantizer) {
  ExpectNotFused(R"(const sizes: int64[2] = {64,16}
y: float[2,16,32] = Relu(x)
m: float[64,16] = Reshape(y, sizes)
q: float8e4m3fn[64,16], qs: float[], a: float[], t: float8e4m3fn[16,64] = onnx_fp8.QuantizeWithTranspose<q_max=448.0, to=17>(m, s)
output q
output t
)");
}

// It could depend on the result.
TEST(FuseQuantize, AScaleThatTheStepComputesIsNotGiven) {
  ExpectNotFused(R"(n: float[] = Neg(s)
o: float[] = Neg(n)
y: float[2,16,32] = Relu(x)
q: float8e4m3fn[2,16,32], qs: float[], a: float[] = onnx_fp8.QuantizeWith<q_max=448.0, to=17>(y, o)
output q
)");
}

TEST(FuseQuantize, ADynamicScaleIsNotGiven) {
  ExpectNotFused(R"(y: float[2,16,32] = Relu(x)
q: float8e4m3fn[2,16,32], qs: float[], a: float[] = onnx_fp8.QuantizeTensor<q_max=448.0, to=17>(y)
output q
)");
}

// The body has all operands.
TEST(FuseQuantize, NormsWithoutBiasStay) {
  ExpectNotFused(R"(y: float[2,16,32] = LayerNormalization<axis=-1>(x, w)
q: float8e4m3fn[2,16,32], qs: float[], a: float[] = onnx_fp8.QuantizeWith<q_max=448.0, to=17>(y, s)
output q
)");
}

TEST(FuseQuantize, AScaleMayBeReadLaterThanTheProducerRuns) {
  ExpectFused(
      R"(const scales: float[3] = {1,2,3}
const i: int64[] = {1}
y: float[2,16,32], mean: float[2,16,1], inv: float[2,16,1] = LayerNormalization(x, w, w)
e: float[] = Gather<axis=0>(scales, i)
q: float8e4m3fn[2,16,32], qs: float[], a: float[] = onnx_fp8.QuantizeWith<q_max=448.0, to=17>(y, e)
output q
output mean
)",
      R"(const scales: float[3] = {1.0,2.0,3.0}
const i: int64[] = {1}
e: float[] = Gather<axis=0>(scales, i)
_, mean: float[2,16,1], inv: float[2,16,1], q: float8e4m3fn[2,16,32], qs: float[], a: float[] = onnx_fp8.LayerNormalizationQuantize<axis=-1, epsilon=1e-05, q_max=448.0, round_to=1, to=17>(x, w, w, e)
output q
output mean
)");
}

TEST(FuseQuantize, BothResultsOfAGate) {
  constexpr char kGate[] =
      R"(dx: float[2,16,32], dg: float[2,16,32] = onnx_fp8.SwiGLUGrad(x, g, g)
q: float8e5m2[2,16,32], qs: float[], a: float[] = onnx_fp8.QuantizeWith<q_max=57344.0, to=19>(dx, s)
r: float8e5m2[2,16,32], rs: float[], b: float[] = onnx_fp8.QuantizeWith<q_max=57344.0, to=19>(dg, z)
output q
output r
)";
  ExpectFused(
      kGate,
      R"(_, _, q: float8e5m2[2,16,32], qs: float[], a: float[], _, r: float8e5m2[2,16,32], rs: float[], b: float[] = onnx_fp8.SwiGLUGradQuantize<q_max=57344.0, round_to=1, to=19>(x, g, g, s, z)
output q
output r
)");
  // The op has one format for both.
  std::string other = kGate;
  other.replace(other.rfind("57344.0"), 7, "28672.0");
  ExpectNotFused(other);
}

// The floats stay as they are; the codes come from the rounded ones.
TEST(FuseQuantize, LooksThroughARoundTo) {
  ExpectFused(
      R"(const sizes: int64[2] = {32,32}
y: float[2,16,32] = Relu(x)
n: float[2,16,32] = onnx_fp8.RoundTo<to=16>(y)
m: float[32,32] = Reshape(n, sizes)
q: float8e4m3fn[32,32], qs: float[], a: float[] = onnx_fp8.QuantizeWith<q_max=448.0, to=17>(m, s)
e: float[2,16,32] = Neg(y)
output q
output e
)",
      R"(const sizes: int64[2] = {32,32}
const "const.int64[2] 32 32": int64[2] = {32,32}
y: float[2,16,32], q_1: float8e4m3fn[2,16,32], qs: float[], a: float[] = onnx_fp8.ReluQuantize<q_max=448.0, round_to=16, to=17>(x, s)
q: float8e4m3fn[32,32] = Reshape<allowzero=1>(q_1, "const.int64[2] 32 32")
e: float[2,16,32] = Neg(y)
output q
output e
)");
}

TEST(FuseQuantize, OtherReadersKeepTheRoundTo) {
  ExpectFused(
      R"(y: float[2,16,32] = Relu(x)
n: float[2,16,32] = onnx_fp8.RoundTo<to=16>(y)
q: float8e4m3fn[2,16,32], qs: float[], a: float[] = onnx_fp8.QuantizeWith<q_max=448.0, to=17>(n, s)
e: float[2,16,32] = Neg(n)
output q
output e
)",
      R"(y: float[2,16,32], q: float8e4m3fn[2,16,32], qs: float[], a: float[] = onnx_fp8.ReluQuantize<q_max=448.0, round_to=16, to=17>(x, s)
n: float[2,16,32] = onnx_fp8.RoundTo<to=16>(y)
e: float[2,16,32] = Neg(n)
output q
output e
)");
}

// Rounding twice is not rounding once.
TEST(FuseQuantize, OnlyOneRoundingLiesBetween) {
  ExpectNotFused(R"(y: float[2,16,32] = Relu(x)
n: float[2,16,32] = onnx_fp8.RoundTo<to=10>(y)
b: float[2,16,32] = onnx_fp8.RoundTo<to=16>(n)
q: float8e4m3fn[2,16,32], qs: float[], a: float[] = onnx_fp8.QuantizeWith<q_max=448.0, to=17>(b, s)
output q
)");
}

// The op rounds both results alike.
TEST(FuseQuantize, TwoRoundingsOfAGateAreNotOne) {
  ExpectNotFused(
      R"(dx: float[2,16,32], dg: float[2,16,32] = onnx_fp8.SwiGLUGrad(x, g, g)
n: float[2,16,32] = onnx_fp8.RoundTo<to=16>(dx)
q: float8e5m2[2,16,32], qs: float[], a: float[] = onnx_fp8.QuantizeWith<q_max=57344.0, to=19>(n, s)
r: float8e5m2[2,16,32], rs: float[], b: float[] = onnx_fp8.QuantizeWith<q_max=57344.0, to=19>(dg, z)
output q
output r
)");
}

// A norm has a row at hand when it needs the row's scale.
TEST(FuseQuantize, ScalesOfRowsNeedNotBeGiven) {
  ExpectFused(
      R"(const sizes: int64[2] = {32,32}
t: float[2,16,32], y: float[2,16,32] = onnx_fp8.AddRMSNorm<axis=-1, epsilon=1e-05>(x, g, w)
m: float[32,32] = Reshape(y, sizes)
q: float8e4m3fn[32,32], qs: float[32,1], a: float[] = onnx_fp8.QuantizeBlock<block_columns=0, block_rows=1, pow2=1, q_max=448.0, scale_to=1, to=17>(m)
output q
output qs
output t
)",
      R"(const sizes: int64[2] = {32,32}
const "const.int64[2] 32 32": int64[2] = {32,32}
t: float[2,16,32], _, q_1: float8e4m3fn[2,16,32], qs: float[32,1], a: float[] = onnx_fp8.AddRMSNormQuantizeRows<axis=-1, epsilon=1e-05, pow2=1, q_max=448.0, round_to=1, scale_to=1, to=17>(x, g, w)
q: float8e4m3fn[32,32] = Reshape<allowzero=1>(q_1, "const.int64[2] 32 32")
output q
output qs
output t
)");
}

// y: a norm of x over the axes from `axis` on; q: its quantizer in blocks of
// these sizes, after it takes the shape `sizes`.
std::string NormInBlocks(const std::string& axis, const std::string& rows,
                         const std::string& columns, const std::string& sizes,
                         const std::string& scales) {
  return "const sizes: int64[2] = {" + sizes +
         "}\ny: float[2,16,32] = onnx_fp8.RMSNorm<axis=" + axis +
         ", epsilon=1e-05>(x, w)\nm: float[" + sizes +
         "] = Reshape(y, sizes)\nq: float8e4m3fn[" + sizes + "], qs: float[" +
         scales +
         "], a: float[] = onnx_fp8.QuantizeBlock<block_columns=" + columns +
         ", block_rows=" + rows +
         ", pow2=0, q_max=448.0, scale_to=1, to=17>(m)\noutput q\noutput qs\n";
}

TEST(FuseQuantize, OnlyScalesOfWholeRowsNeedNotBeGiven) {
  auto fuses = [](const std::string& text) {
    std::string after = AfterFusing(text, KernelsThatQuantize());
    return after.find("RMSNormQuantizeRows") != after.npos;
  };
  EXPECT_TRUE(fuses(NormInBlocks("-1", "1", "0", "32,32", "32,1")));
  EXPECT_TRUE(fuses(NormInBlocks("2", "1", "32", "32,32", "32,1")));
  EXPECT_FALSE(fuses(NormInBlocks("-1", "1", "16", "32,32", "32,2")));
  EXPECT_FALSE(fuses(NormInBlocks("-1", "2", "0", "32,32", "16,1")));
  EXPECT_FALSE(fuses(NormInBlocks("-1", "0", "1", "32,32", "1,32")));
  EXPECT_FALSE(fuses(NormInBlocks("-1", "1", "0", "64,16", "64,1")));
  EXPECT_FALSE(fuses(NormInBlocks("1", "1", "0", "32,32", "32,1")));
}

// A value that is kept in 16 bits is rounded before it is quantized.
TEST(FuseQuantize, RoundsAsTheValueIsKept) {
  auto graph = ParseGraph(std::string(kFusingInputs) + kSilu);
  graph->Find("y")->narrow = DType::kBFloat16;
  FuseQuantize(*graph, KernelsThatQuantize());
  EXPECT_EQ(graph->Find("q")->producer->Int("round_to", 0), 16);
}

}  // namespace
}  // namespace onnx_fp8
