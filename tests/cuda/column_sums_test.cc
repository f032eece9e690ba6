// SPDX-License-Identifier: Apache-2.0
//
// Quantizers that also sum the columns of their operand: codes, transpose and
// scalars are the CPU's, and sums equal ReduceSum's.
#include <gtest/gtest.h>

#include <string>

#include "base/check.h"
#include "providers/cpu/cpu_provider.h"
#include "providers/cuda/cuda_provider.h"
#include "providers/ops/divide_up.h"
#include "providers/passes/expand_missing.h"
#include "providers/passes/fuse_column_sums.h"
#include "providers/passes/join_orientations.h"
#include "providers/passes/k_major.h"
#include "providers/passes/store_narrow.h"
#include "tests/cuda/beside_cpu.h"
#include "tests/graph/parse.h"

namespace onnx_fp8 {
namespace {

struct Sizes {
  int64_t rows, columns;
};

// x, rounded to `kept` unless that is a float of 32 bits, quantized with its
// own scale, with one that is given, with one that is not yet known, and with
// scales of columns, of parts of columns, and of these and rows.
std::string QuantizersOf(const Sizes& x, DType kept) {
  std::string plain = Concat("[", x.rows, ",", x.columns, "]");
  std::string turned = Concat("[", x.columns, ",", x.rows, "]");
  std::string text =
      Concat("input x: float", plain,
             "\nconst given: float[] = {0.01}\nconst own: float[] = {0}\n");
  std::string operand = "x";
  if (kept != DType::kFloat) {
    operand = "r";
    text += Concat("r: float", plain,
                   " = onnx_fp8.RoundTo<to=", static_cast<int>(kept), ">(x)\n");
  }
  std::string outputs;
  int i = 0;
  for (const char* scale : {"", ", given", ", own"}) {
    text +=
        Concat("q", i, ": float8e5m2", plain, ", s", i, ": float[], a", i,
               ": float[], t", i, ": float8e5m2", turned, ", c", i, ": float[",
               x.columns, "] = onnx_fp8.Quantize", *scale ? "With" : "Tensor",
               "Transpose<to=19, q_max=57344.0>(", operand, scale, ")\n");
    for (const char* name : {"q", "s", "a", "t", "c"}) {
      outputs += Concat("output ", name, i, "\n");
    }
    ++i;
  }
  for (int64_t block : {0, 128, 32, 7}) {
    text += Concat("q", i, ": float8e5m2", turned, ", s", i, ": float[",
                   x.columns, ",", block == 0 ? 1 : DivideUp(x.rows, block),
                   "], a", i, ": float[], c", i, ": float[", x.columns,
                   "] = onnx_fp8.QuantizeColumns<to=19, q_max=57344.0, "
                   "block_rows=1, block_columns=",
                   block, ", pow2=0, scale_to=1>(", operand, ")\n");
    for (const char* name : {"q", "s", "a", "c"}) {
      outputs += Concat("output ", name, i, "\n");
    }
    ++i;
  }
  for (int64_t block : {0, 32}) {
    auto scales = [&](int64_t size, int64_t along) {
      return Concat("[", size, ",", block == 0 ? 1 : DivideUp(along, block),
                    "]");
    };
    text += Concat("q", i, ": float8e5m2", plain, ", s", i, ": float",
                   scales(x.rows, x.columns), ", a", i, ": float[], t", i,
                   ": float8e5m2", turned, ", u", i, ": float",
                   scales(x.columns, x.rows), ", c", i, ": float[", x.columns,
                   "] = onnx_fp8.QuantizeBlockTranspose<to=19, q_max=57344.0, "
                   "block_rows=1, block_columns=",
                   block, ", pow2=0, scale_to=1>(", operand, ")\n");
    for (const char* name : {"q", "s", "a", "t", "u", "c"}) {
      outputs += Concat("output ", name, i, "\n");
    }
    ++i;
  }
  return text + outputs;
}

class CudaColumnSumsTest : public testing::TestWithParam<Sizes> {};

TEST_P(CudaColumnSumsTest, AreThoseOfReduceSum) {
  for (DType kept : {DType::kFloat, DType::kBFloat16, DType::kFloat16}) {
    std::string text = QuantizersOf(GetParam(), kept);
    SCOPED_TRACE(text);
    std::shared_ptr<Graph> for_cpu = ParseGraph(text);
    std::shared_ptr<Graph> for_cuda = ParseGraph(text);
    auto evaluator = MakeCpuEvaluator();
    ExpandMissing(*for_cpu, CpuKernels(), {}, evaluator.get());
    StoreNarrow(*for_cuda, CudaKernels());
    ExpectCpusResults(for_cpu, for_cuda, 2e-6);
  }
}

INSTANTIATE_TEST_SUITE_P(All, CudaColumnSumsTest,
                         testing::Values(Sizes{4, 4}, Sizes{16, 400},
                                         Sizes{132, 260}, Sizes{128, 20},
                                         Sizes{144, 128}, Sizes{264, 132}),
                         [](const auto& info) {
                           return Concat("x", info.param.rows, "_",
                                         info.param.columns);
                         });

// The gradient of a layer: two products read its codes, and the bias its sum.
constexpr char kGradient[] = R"(graph "g" opset 24
input dy: float[2,80,48]
input x: float[160,32]
input w: float[48,32]
const shape: int64[2] = {160,48}
const rows: int64[1] = {0}
const bias: int64[1] = {48}
d: float[160,48] = Reshape(dy, shape)
qd: float8e5m2[160,48], sd: float[], ad: float[] = onnx_fp8.QuantizeTensor<q_max=57344.0, to=19>(d)
qx: float8e4m3fn[160,32], sx: float[], ax: float[] = onnx_fp8.QuantizeTensor<q_max=448.0, to=17>(x)
qw: float8e4m3fn[48,32], sw: float[], aw: float[] = onnx_fp8.QuantizeTensor<q_max=448.0, to=17>(w)
sum: float[1,48] = ReduceSum<keepdims=1>(d, rows)
db: float[48] = Reshape(sum, bias)
dx: float[160,32] = onnx_fp8.ScaledMatMul<transA=0, transB=0>(qd, sd, qw, sw)
dw: float[48,32] = onnx_fp8.ScaledMatMul<transA=1, transB=0>(qd, sd, qx, sx)
output db
output dx
output dw
)";

// The same with a scale for each row and column (`rowwise`).
constexpr char kByRows[] = R"(graph "g" opset 24
input d: float[160,48]
input x: float[160,32]
input w: float[48,32]
const rows: int64[1] = {0}
qd: float8e5m2[160,48], sd: float[160,1], ad: float[] = onnx_fp8.QuantizeBlock<block_columns=0, block_rows=1, pow2=0, q_max=57344.0, scale_to=1, to=19>(d)
td: float8e5m2[160,48], ud: float[1,48], bd: float[] = onnx_fp8.QuantizeBlock<block_columns=1, block_rows=0, pow2=0, q_max=57344.0, scale_to=1, to=19>(d)
qx: float8e4m3fn[160,32], sx: float[1,32], ax: float[] = onnx_fp8.QuantizeBlock<block_columns=1, block_rows=0, pow2=0, q_max=448.0, scale_to=1, to=17>(x)
qw: float8e4m3fn[48,32], sw: float[1,32], aw: float[] = onnx_fp8.QuantizeBlock<block_columns=1, block_rows=0, pow2=0, q_max=448.0, scale_to=1, to=17>(w)
db: float[48] = ReduceSum<keepdims=0>(d, rows)
dx: float[160,32] = onnx_fp8.ScaledMatMulBlock<a_block_columns=0, a_block_rows=1, b_block_columns=1, b_block_rows=0, transA=0, transB=0>(qd, sd, qw, sw)
dw: float[48,32] = onnx_fp8.ScaledMatMulBlock<a_block_columns=1, a_block_rows=0, b_block_columns=1, b_block_rows=0, transA=1, transB=0>(td, ud, qx, sx)
output db
output dx
output dw
)";

TEST(CudaColumnSums, OfALayersGradient) {
  for (const char* text : {kGradient, kByRows}) {
    std::shared_ptr<Graph> fused = ParseGraph(text);
    MakeKMajor(*fused, CudaKernels());
    JoinOrientations(*fused, CudaKernels());
    FuseColumnSums(*fused, CudaKernels());
    for (const Node& node : fused->nodes()) EXPECT_NE(node.op, "ReduceSum");
    ExpectCpusResults(ParseGraph(text), fused, 4e-6);
  }
}

TEST(CudaColumnSums, AreNotWrittenWithoutCodes) {
  std::string error = ErrorOnGpu(
      "input x: float[16,16]\n"
      "q: float8e5m2[16,16], s: float[], a: float[], _, "
      "c: float[16] = onnx_fp8.QuantizeTensorTranspose"
      "<to=19, q_max=57344.0>(x)\noutput c\n");
  EXPECT_NE(error.find("expected transposed codes beside the sums"), error.npos)
      << error;
}

}  // namespace
}  // namespace onnx_fp8
