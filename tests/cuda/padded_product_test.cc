// SPDX-License-Identifier: Apache-2.0
//
// Products of sizes that are no multiples of 16, whose quantizers add zeros.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "base/check.h"
#include "providers/cpu/cpu_provider.h"
#include "providers/cuda/cuda_provider.h"
#include "providers/ops/divide_up.h"
#include "providers/passes/expand_missing.h"
#include "providers/passes/fuse_quantize.h"
#include "providers/passes/k_major.h"
#include "providers/passes/pad_operands.h"
#include "providers/run/executor.h"
#include "tests/cuda/beside_cpu.h"
#include "tests/cuda/emulation/emulation.h"
#include "tests/graph/parse.h"
#include "tests/providers/cpu/random_feeds.h"

namespace onnx_fp8 {
namespace {

struct LayerSize {
  int64_t m, n, k;
};

// A layer's three products, (m,k) x (k,n), of quantizers that may add zeros.
std::string LayerText(int64_t m, int64_t k, int64_t n) {
  std::string x = ToString(Shape{m, k}), w = ToString(Shape{n, k}),
              dy = ToString(Shape{m, n});
  return Concat(
      "input x: float", x, "\ninput w: float", w, "\ninput dy: float", dy,
      "\ninput bias: float[", n, "]\nconst given: float[] = {0.01}\n",
      "qx: float8e4m3fn", x, ", sx: float[], ax: float[] = ",
      "onnx_fp8.QuantizeTensor<to=17, q_max=448.0>(x)\n", "qw: float8e4m3fn", w,
      ", sw: float[], aw: float[] = ",
      "onnx_fp8.QuantizeTensor<to=17, q_max=448.0>(w)\n", "qd: float8e5m2", dy,
      ", sd: float[], ad: float[] = ",
      "onnx_fp8.QuantizeWith<to=19, q_max=57344.0>(dy, given)\n", "y: float",
      dy,
      " = onnx_fp8.ScaledMatMulBias<transA=0, transB=1>"
      "(qx, sx, qw, sw, bias)\n",
      "dx: float", x,
      " = onnx_fp8.ScaledMatMul<transA=0, transB=0>(qd, sd, qw, sw)\n",
      "dw: float", w,
      " = onnx_fp8.ScaledMatMul<transA=1, transB=0>(qd, sd, qx, sx)\n",
      "output y\noutput dx\noutput dw\noutput ax\noutput aw\noutput ad\n");
}

// The runs of a kernel of the graph.
int64_t Launches(const std::shared_ptr<Graph>& graph,
                 const std::string& kernel) {
  auto cuda = MakeCudaProvider();
  Executor executor(graph, *cuda);
  TensorMap feeds = RandomFeeds(*graph, {}), state;
  emulation::ResetCounts();
  executor.Run(feeds, state);
  cuda->Synchronize();
  int64_t launches = 0;
  for (const auto& [name, traffic] : emulation::Traffic()) {
    if (name.find(kernel) != name.npos) launches += traffic.launches;
  }
  return launches;
}

TEST(PaddedProducts, AreTheCpusAndCopyNoOperand) {
  for (const LayerSize& z :
       {LayerSize{131, 47, 165}, {5, 7, 3}, {32, 50, 64}, {14, 32, 132}}) {
    std::string text = LayerText(z.m, z.k, z.n);
    SCOPED_TRACE(text);
    std::shared_ptr<Graph> padded = ParseGraph(text);
    MakeKMajor(*padded, CudaKernels());
    PadOperands(*padded, CudaKernels());
    ExpectCpusResults(ParseGraph(text), padded, 4e-6);
    for (const char* kernel : {"PadKernel", "TransposeKernel"}) {
      EXPECT_EQ(Launches(padded, kernel), 0);
    }
    EXPECT_GT(Launches(ParseGraph(text), "TransposeKernel"), 0);
    EXPECT_EQ(Launches(padded, "EncodeMatrixKernel"), 1);
  }
}

// The graph's results for random inputs.
TensorMap Results(const std::shared_ptr<Graph>& graph) {
  auto cuda = MakeCudaProvider();
  Executor executor(graph, *cuda);
  TensorMap state, results = executor.Run(RandomFeeds(*graph, {}), state);
  cuda->Synchronize();
  for (auto& [name, tensor] : results) tensor = cuda->ToHost(tensor);
  return results;
}

// A norm, a layer and its gradients, with given scales. The norm and the
// activation's gradient, which comes with a bias gradient, quantize their
// results.
std::string NormAndLayerText(int64_t m, int64_t k, int64_t n) {
  std::string x = ToString(Shape{m, k}), w = ToString(Shape{n, k}),
              dy = ToString(Shape{m, n});
  return Concat(
      "input x: float", x, "\ninput row: float[", k, "]\ninput w: float", w,
      "\ninput dy: float", dy, "\ninput z: float", dy,
      "\nconst given: float[] = {0.01}\n", "h: float", x,
      " = onnx_fp8.RMSNorm<axis=-1, epsilon=1e-05>(x, row)\n", "d: float", dy,
      ", db: float[", n, "] = onnx_fp8.SiluBiasGrad(dy, z)\n",
      "qx: float8e4m3fn", x, ", sx: float[], ax: float[] = ",
      "onnx_fp8.QuantizeWith<to=17, q_max=448.0>(h, given)\n",
      "qw: float8e4m3fn", w, ", sw: float[], aw: float[] = ",
      "onnx_fp8.QuantizeWith<to=17, q_max=448.0>(w, given)\n", "qd: float8e5m2",
      dy, ", sd: float[], ad: float[] = ",
      "onnx_fp8.QuantizeWith<to=19, q_max=57344.0>(d, given)\n", "y: float", dy,
      " = onnx_fp8.ScaledMatMul<transA=0, transB=1>(qx, sx, qw, sw)\n",
      "dx: float", x,
      " = onnx_fp8.ScaledMatMul<transA=0, transB=0>(qd, sd, qw, sw)\n",
      "dw: float", w,
      " = onnx_fp8.ScaledMatMul<transA=1, transB=0>(qd, sd, qx, sx)\n",
      "output y\noutput dx\noutput dw\noutput db\noutput ax\noutput ad\n");
}

TEST(PaddedProducts, ProducersThatQuantizeAddTheZeros) {
  for (const LayerSize& z : {LayerSize{131, 47, 165}, {5, 7, 3}}) {
    std::string text = NormAndLayerText(z.m, z.k, z.n);
    SCOPED_TRACE(text);
    auto graph = [&](bool pads, bool fuses) {
      std::shared_ptr<Graph> made = ParseGraph(text);
      if (pads) PadOperands(*made, CudaKernels());
      if (fuses) FuseQuantize(*made, CudaKernels());
      return made;
    };
    std::shared_ptr<Graph> fused = graph(true, true);
    TensorMap want = Results(graph(true, false)), got = Results(fused);
    for (const auto& [name, tensor] : want) {
      EXPECT_TRUE(Identical(got.at(name), tensor)) << name;
    }
    for (const char* kernel : {"PadKernel", "TransposeKernel"}) {
      EXPECT_EQ(Launches(fused, kernel), 0);
    }
    EXPECT_EQ(Launches(fused, "EncodeMatrixKernel"), 1);  // w alone
    EXPECT_GT(Launches(graph(false, true), "TransposeKernel"), 0);
  }
}

// The codes themselves, and all zeros.
TEST(PaddedProducts, QuantizersHaveTheBytesOfTheirBodies) {
  for (const auto& [rows, columns] : {std::pair{3, 5}, {130, 260}, {16, 33}}) {
    int64_t to_rows = RoundUp(rows, 16), to_columns = RoundUp(columns, 16);
    std::string text =
        Concat("input x: float[", rows, ",", columns,
               "]\nconst given: float[] = {0.01}\nconst own: float[] = {0}\n");
    const char* operands[] = {"x", "x, given", "x, own"};
    for (int i = 0; i < 3; ++i) {
      text +=
          Concat("q", i, ": float8e4m3fn[", to_rows, ",", to_columns, "], s", i,
                 ": float[], a", i, ": float[], t", i, ": float8e4m3fn[",
                 to_columns, ",", to_rows, "] = onnx_fp8.",
                 i == 0 ? "QuantizeTensor" : "QuantizeWith",
                 "Padded<to=17, q_max=448.0>(", operands[i], ")\n");
      for (char out : {'q', 's', 'a', 't'})
        text += Concat("output ", out, i, "\n");
    }
    SCOPED_TRACE(text);
    std::shared_ptr<Graph> by_body = ParseGraph(text);
    auto evaluator = MakeCpuEvaluator();
    ExpandMissing(*by_body, CpuKernels(), {}, evaluator.get());
    ExpectCpusResults(by_body, ParseGraph(text), 0);
  }
}

}  // namespace
}  // namespace onnx_fp8
