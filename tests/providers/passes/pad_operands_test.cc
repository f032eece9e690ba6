// SPDX-License-Identifier: Apache-2.0
#include "providers/passes/pad_operands.h"

#include <gtest/gtest.h>

#include "providers/cpu/cpu_provider.h"
#include "providers/ops/product_copies.h"
#include "providers/passes/expand_missing.h"
#include "providers/run/executor.h"
#include "tests/graph/parse.h"
#include "tests/providers/after_pass.h"
#include "tests/providers/cpu/random_feeds.h"

namespace onnx_fp8 {
namespace {

KernelRegistry WithPaddedOps() {
  KernelRegistry kernels;
  for (const char* op : {"QuantizeTensorPadded", "QuantizeWithPadded",
                         "ScaledMatMulPadded", "ScaledMatMulPaddedBias"}) {
    kernels.Add(
        op, [](KernelContext&) {}, {}, kDomain);
  }
  return kernels;
}

std::string Padded(const std::string& text, const KernelRegistry& kernels) {
  return AfterPass(text, PadOperands, kernels);
}

void ExpectNotPadded(const std::string& text) {
  EXPECT_EQ(Padded(text, WithPaddedOps()), text);
}

// x (2·7, 20) and w (32, 20) as in a layer; dy (14, 32).
constexpr char kOddProducts[] = R"(input x: float[2,7,20]
input w: float[32,20]
input dy: float[14,32]
input bias: float[32]
input s: float[]
qx: float8e4m3fn[2,7,20], sx: float[], ax: float[] = onnx_fp8.QuantizeTensor<q_max=448.0, to=17>(x)
qw: float8e4m3fn[32,20], sw: float[], aw: float[] = onnx_fp8.QuantizeTensor<q_max=448.0, to=17>(w)
qd: float8e5m2[14,32], sd: float[], ad: float[] = onnx_fp8.QuantizeWith<q_max=57344.0, to=19>(dy, s)
y: float[2,7,32] = onnx_fp8.ScaledMatMulBias<fast_accum=1, transA=0, transB=1>(qx, sx, qw, sw, bias)
dx: float[14,20] = onnx_fp8.ScaledMatMul<transA=0, transB=0>(qd, sd, qw, sw)
dw: float[32,20] = onnx_fp8.ScaledMatMul<transA=1, transB=0>(qd, sd, qx, sx)
output y
output dx
output dw
output ax
output sd
)";

constexpr char kPadded[] = R"(input x: float[2,7,20]
input w: float[32,20]
input dy: float[14,32]
input bias: float[32]
input s: float[]
qx: float8e4m3fn[16,32], sx: float[], ax: float[], qx.transposed: float8e4m3fn[32,16] = onnx_fp8.QuantizeTensorPadded<q_max=448.0, to=17>(x)
qw: float8e4m3fn[32,32], sw: float[], aw: float[], qw.transposed: float8e4m3fn[32,32] = onnx_fp8.QuantizeTensorPadded<q_max=448.0, to=17>(w)
qd: float8e5m2[16,32], sd: float[], ad: float[], qd.transposed: float8e5m2[32,16] = onnx_fp8.QuantizeWithPadded<q_max=57344.0, to=19>(dy, s)
y: float[2,7,32] = onnx_fp8.ScaledMatMulPaddedBias<fast_accum=1, shape=[2,7,32]>(qx, sx, qw, sw, bias)
dx: float[14,20] = onnx_fp8.ScaledMatMulPadded<shape=[14,20]>(qd, sd, qw.transposed, sw)
dw: float[32,20] = onnx_fp8.ScaledMatMulPadded<shape=[32,20]>(qd.transposed, sd, qx.transposed, sx)
output y
output dx
output dw
output ax
output sd
)";

TEST(PadOperands, QuantizersAddTheZerosInEachOrientationThatIsRead) {
  EXPECT_EQ(Padded(kOddProducts, WithPaddedOps()), kPadded);
}

TEST(PadOperands, AProviderWithoutSuchKernelsKeepsItsGraph) {
  EXPECT_EQ(Padded(kOddProducts, {}), kOddProducts);
}

TEST(PadOperands, TheReportSaysWhoPads) {
  auto graph = ParseGraph(std::string("graph \"g\" opset 24\n") + kPadded);
  std::map<std::string, std::string> copies;
  for (const Node& node : graph->nodes()) {
    copies[node.out(0)->name] = ProductCopies(node);
  }
  EXPECT_EQ(copies["y"], "m 14 to 16, k 20 to 32 by the quantizers");
  EXPECT_EQ(copies["dx"], "m 14 to 16, n 20 to 32 by the quantizers");
  EXPECT_EQ(copies["dw"], "k 14 to 16, n 20 to 32 by the quantizers");
  EXPECT_EQ(copies["qx"], "");
}

// An op that quantizes its own result is one of the quantizers.
TEST(PadOperands, TheReportSaysThatAProducerPads) {
  auto graph = ParseGraph(R"(graph "g" opset 24
input x: float[2,7,20]
input w: float[20]
input s: float[]
input dy: float[14,32]
_, q: float8e4m3fn[16,32], qs: float[], a: float[], t: float8e4m3fn[32,16] = onnx_fp8.RMSNormQuantizePadded<axis=-1, epsilon=1e-05, q_max=448.0, round_to=1, to=17>(x, w, s)
qd: float8e5m2[16,32], sd: float[], ad: float[], td: float8e5m2[32,16] = onnx_fp8.QuantizeWithPadded<q_max=57344.0, to=19>(dy, s)
y: float[2,7,14] = onnx_fp8.ScaledMatMulPadded<shape=[2,7,14]>(q, qs, q, qs)
dw: float[32,20] = onnx_fp8.ScaledMatMulPadded<shape=[32,20]>(td, sd, t, qs)
output y
output dw
)");
  std::map<std::string, std::string> copies;
  for (const Node& node : graph->nodes()) {
    if (node.out(0)) copies[node.out(0)->name] = ProductCopies(node);
  }
  EXPECT_EQ(copies["y"],
            "m 14 to 16, k 20 to 32, n 14 to 16 by the quantizers");
  EXPECT_EQ(copies["dw"], "k 14 to 16, n 20 to 32 by the quantizers");
}

// The quantizer of w alone needs zeros: along n.
constexpr char kOneNeedsZeros[] = R"(input x: float[16,32]
input w: float[20,32]
qx: float8e4m3fn[16,32], sx: float[], ax: float[] = onnx_fp8.QuantizeTensor<q_max=448.0, to=17>(x)
qw: float8e4m3fn[20,32], sw: float[], aw: float[] = onnx_fp8.QuantizeTensor<q_max=448.0, to=17>(w)
y: float[16,20] = onnx_fp8.ScaledMatMul<transA=0, transB=1>(qx, sx, qw, sw)
output y
)";

TEST(PadOperands, OperandsThatFitStay) {
  std::string text = Padded(kOneNeedsZeros, WithPaddedOps());
  EXPECT_NE(text.find("qx: float8e4m3fn[16,32], sx: float[], ax: float[] = "
                      "onnx_fp8.QuantizeTensor<"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("qw: float8e4m3fn[32,32], sw: float[], aw: float[] = "
                      "onnx_fp8.QuantizeTensorPadded<"),
            std::string::npos)
      << text;
}

TEST(PadOperands, SizesThatNeedNoZerosStay) {
  ExpectNotPadded(R"(input x: float[16,32]
q: float8e4m3fn[16,32], s: float[], a: float[] = onnx_fp8.QuantizeTensor<q_max=448.0, to=17>(x)
y: float[32,32] = onnx_fp8.ScaledMatMul<transA=1, transB=0>(q, s, q, s)
output y
)");
}

TEST(PadOperands, CodesThatSomethingElseReadsStay) {
  ExpectNotPadded(std::string(kOneNeedsZeros) + "output qw\n");
  std::string read = kOneNeedsZeros;
  read.insert(read.rfind("output y"),
              "f: float[20,32] = Cast<to=1>(qw)\noutput f\n");
  ExpectNotPadded(read);
}

// dx's codes are a tensor of the file that is copied in any case, so w stays;
// and with w, x.
TEST(PadOperands, ProductsThatCopyAnOperandKeepTheOther) {
  ExpectNotPadded(R"(input x: float[7,20]
input w: float[32,20]
input qd: float8e5m2[7,32]
input sd: float[]
qx: float8e4m3fn[7,20], sx: float[], ax: float[] = onnx_fp8.QuantizeTensor<q_max=448.0, to=17>(x)
qw: float8e4m3fn[32,20], sw: float[], aw: float[] = onnx_fp8.QuantizeTensor<q_max=448.0, to=17>(w)
y: float[7,32] = onnx_fp8.ScaledMatMul<transA=0, transB=1>(qx, sx, qw, sw)
dx: float[7,20] = onnx_fp8.ScaledMatMul<transA=0, transB=0>(qd, sd, qw, sw)
output y
output dx
)");
}

TensorMap RunOnCpu(std::shared_ptr<Graph> graph, const TensorMap& feeds) {
  auto evaluator = MakeCpuEvaluator();
  ExpandMissing(*graph, CpuKernels(), {}, evaluator.get());
  auto cpu = MakeCpuProvider();
  Executor executor(graph, *cpu);
  TensorMap state;
  return executor.Run(feeds, state);
}

// The bodies, beside the plain ops. Zeros may change the order of the sums.
TEST(PadOperands, BodiesComputeTheSame) {
  auto graph = [] {
    return ParseGraph(std::string("graph \"g\" opset 24\n") + kOddProducts);
  };
  std::shared_ptr<Graph> padded = graph();
  PadOperands(*padded, WithPaddedOps());
  TensorMap feeds = RandomFeeds(*padded, {});
  feeds["s"] = Tensor::Scalar(0.0078125f);
  TensorMap got = RunOnCpu(padded, feeds), want = RunOnCpu(graph(), feeds);
  ASSERT_EQ(got.size(), 5u);
  for (const auto& [name, tensor] : want) {
    EXPECT_EQ(got.at(name).shape(), tensor.shape()) << name;
    for (int64_t i = 0; i < tensor.size(); ++i) {
      ASSERT_NEAR(DoubleAt(got.at(name), i), DoubleAt(tensor, i), 1e-4) << name;
    }
  }
}

}  // namespace
}  // namespace onnx_fp8
