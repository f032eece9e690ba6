// SPDX-License-Identifier: Apache-2.0
//
// The bytes that kernels read and write, as the checked emulated device counts
// them, beside what the headers of the kernels claim. What several threads read
// counts for each of them, though a GPU's cache serves all but one: so an
// operand that is broadcast counts once for each element of the result.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <tuple>

#include "base/check.h"
#include "providers/cuda/cuda_provider.h"
#include "providers/passes/fuse_quantize.h"
#include "providers/passes/store_narrow.h"
#include "providers/run/executor.h"
#include "tests/cuda/emulation/emulation.h"
#include "tests/graph/parse.h"
#include "tests/providers/cpu/random_feeds.h"
#include "tests/providers/kernel_cases.h"
#include "tests/providers/quantized_graph.h"

namespace onnx_fp8 {
namespace {

struct Bytes {
  double read = 0, written = 0;
};

// Times of what the operands and the results of a case have.
const std::map<std::string, Bytes> kClaims = {
    // two passes: the largest element and the sum, then the result
    {"SoftmaxOfColumns", {2, 1}},
    {"SoftmaxGradOfColumns", {2, 1}},
    // sums of a few rows each are written, then added
    {"SiluBiasGrad", {1.3, 1.4}},
    {"AddLayerNormGrad", {1, 1.13}},
    {"LayerNormGrad", {1, 1.13}},
    {"AddRMSNormGrad", {1.27, 1.07}},
    {"RMSNormGrad", {1.36, 1.07}},
    {"ReduceSum", {1.34, 2}},
    // amax and codes; each thread reads the scale
    {"QuantizeTensor", {2.02, 1.01}},
    {"QuantizeWith", {1.63, 1.01}},
    {"QuantizeBlock", {2.7, 1.1}},
    // 64 rows of q in a block: two blocks of rows read k and v, which the mask
    // cuts
    {"Attention", {1.66, 1}},
};
constexpr double kScalars = 4096;  // bytes of scalars and sums, at most

Bytes Counted(const std::shared_ptr<Graph>& graph) {
  auto cuda = MakeCudaProvider();
  Executor executor(graph, *cuda);
  TensorMap feeds = RandomFeeds(*graph, {"lse", "rows"}), state;
  emulation::ResetCounts();
  executor.Run(feeds, state);
  cuda->Synchronize();
  Bytes sum;
  for (const auto& [kernel, traffic] : emulation::Traffic()) {
    sum.read += static_cast<double>(traffic.bytes_read);
    sum.written += static_cast<double>(traffic.bytes_written);
  }
  return sum;
}

// All operands, broadcast to the largest result of their node, and all results.
Bytes Once(const KernelCase& c) {
  Bytes sum;
  std::shared_ptr<Graph> graph = GraphOf(c);
  for (const Node& node : graph->nodes()) {
    int64_t largest = 0;
    for (const Value* y : node.outputs()) {
      largest = std::max(largest, NumElements(*y->shape));
      sum.written += static_cast<double>(BytesOf(*y));
    }
    for (const Value* x : node.inputs()) {
      int64_t elements = std::max(largest, NumElements(*x->shape));
      sum.read += static_cast<double>(elements) *
                  static_cast<double>(ByteSize(x->dtype));
    }
  }
  return sum;
}

// Products are cuBLASLt's, AllGather is NCCL's. The other cases of attention
// are like "Attention".
std::vector<KernelCase> CasesOfOurKernels() {
  std::vector<KernelCase> cases;
  for (const KernelCase& c : KernelCases()) {
    std::string_view name = c.name, node = c.node;
    bool library = name == "AllGather" || node.find("MatMul") != node.npos ||
                   node.find("Gemm") != node.npos;
    if (library || (name.starts_with("Attention") && name != "Attention")) {
      continue;
    }
    cases.push_back(c);
  }
  return cases;
}

class CudaTrafficTest : public testing::TestWithParam<KernelCase> {};

TEST_P(CudaTrafficTest, IsWhatTheHeadersClaim) {
  if (!emulation::Checked()) return;  // only checked builds count
  auto it = kClaims.find(GetParam().name);
  Bytes claim = it == kClaims.end() ? Bytes{1, 1} : it->second;
  Bytes once = Once(GetParam()), got = Counted(GraphOf(GetParam()));
  EXPECT_LE(got.read, claim.read * once.read + kScalars);
  EXPECT_LE(got.written, claim.written * once.written + kScalars);
  EXPECT_GE(got.written, once.written);
}

INSTANTIATE_TEST_SUITE_P(All, CudaTrafficTest,
                         testing::ValuesIn(CasesOfOurKernels()),
                         [](const auto& info) { return info.param.name; });

// What a producer and its quantizer read and write in bfloat16, for each
// element of the result; and together. With one scale there are codes in both
// orientations.
struct Fusion {
  const char* op;
  double apart, together;
};

class CudaFusionTest : public testing::TestWithParam<Fusion> {};

TEST_P(CudaFusionTest, MovesTheBytesThatTheHeadersClaim) {
  if (!emulation::Checked()) return;  // only checked builds count
  const FusedQuantizer& row = *FindFusedQuantizer(GetParam().op);
  constexpr double kElements = 256 * 384;
  QuantizedForm form = {"256,384", "384", "256,1", "256,384",
                        "384,256", true,  false};
  auto bytes = [&](bool fuse) {
    std::shared_ptr<Graph> graph = QuantizedGraph(row, form);
    StoreNarrow(*graph, CudaKernels());
    if (fuse) FuseQuantize(*graph, CudaKernels());
    Bytes counted = Counted(graph);
    return (counted.read + counted.written) / kElements;
  };
  double apart = bytes(false), together = bytes(true);
  EXPECT_NEAR(apart, GetParam().apart, 0.1 * GetParam().apart);
  EXPECT_NEAR(together, GetParam().together, 0.1 * GetParam().together);
}

// Columns of a tensor that is quantized in both orientations: x is read to be
// measured, and once more. Each thread reads the scale.
TEST(CudaTraffic, ColumnSumsReadNothingMore) {
  if (!emulation::Checked()) return;  // only checked builds count
  std::shared_ptr<Graph> graph = ParseGraph(
      "input x: float[512,256]\n"
      "q: float8e5m2[512,256], s: float[], a: float[], t: float8e5m2[256,512], "
      "c: float[256] = "
      "onnx_fp8.QuantizeTensorTranspose<to=19, q_max=57344.0>(x)\n"
      "output q\noutput t\noutput c\n");
  constexpr double kElements = 512 * 256, kParts = 4 * kElements / 128;
  constexpr double kScales = 4 * kElements / 32;
  Bytes got = Counted(graph);
  EXPECT_LE(got.read, 8 * kElements + kParts + kScales + kScalars);
  EXPECT_LE(got.written, 2 * kElements + kParts + kScalars);
}

// The scores in the node, and the gradient, are kept as they were rounded.
std::shared_ptr<Graph> LossOfRounded(int64_t classes, DType dtype) {
  const std::string shape = Concat("float[2,", classes, "]");
  const int to = dtype == DType::kBFloat16 ? 16 : 10;
  std::string text = Concat("input x: ", shape, R"(
const share: float[] = {1}
const labels: int64[2]
)");
  if (dtype == DType::kFloat) {
    text += Concat("l: float[], y: ", shape,
                   " = onnx_fp8.CrossEntropyWithGrad(share, x, labels)\n");
  } else {
    text += Concat("s: ", shape, " = onnx_fp8.RoundTo<to=", to, ">(x)\n",
                   "l: float[], d: ", shape,
                   " = onnx_fp8.CrossEntropyWithGrad(share, s, labels)\n",
                   "r: ", shape, " = onnx_fp8.RoundTo<to=", to, ">(d)\n",
                   "y: ", shape, " = Neg(r)\n");
  }
  auto graph = ParseGraph(text + "output l\noutput y\n");
  StoreNarrow(*graph, CudaKernels());
  return graph;
}

// Shared memory holds 28672 floats of a row, or twice as many scores in 16
// bits; scores past that are read twice.
TEST(CudaTraffic, LossesWithGradientReadScoresOnce) {
  if (!emulation::Checked()) return;  // only checked builds count
  for (auto [dtype, classes, again] : {std::tuple{DType::kFloat, 28672, 0},
                                       {DType::kFloat, 32000, 32000 - 28672},
                                       {DType::kBFloat16, 57344, 0},
                                       {DType::kFloat16, 57344, 0}}) {
    Counted(LossOfRounded(classes, dtype));
    double read = 0;
    for (const auto& [kernel, traffic] : emulation::Traffic()) {
      if (kernel.find("ScoresWithGrad") == kernel.npos) continue;
      read += static_cast<double>(traffic.bytes_read);
    }
    // Each thread reads the share, the count, and labels.
    constexpr double kOfThreads = 2 * 512 * (4 + 8 + 8) + kScalars;
    const double expected = 2.0 * static_cast<double>(classes + again) *
                            static_cast<double>(ByteSize(dtype));
    EXPECT_GE(read, expected) << Name(dtype) << " " << classes;
    EXPECT_LE(read, expected + kOfThreads) << Name(dtype) << " " << classes;
  }
}

// Operands are floats here: 4 bytes each.
INSTANTIATE_TEST_SUITE_P(
    All, CudaFusionTest,
    testing::Values(
        // x once; y written and read; codes twice
        Fusion{"SiluQuantize", 4 + 2 + 2 + 2, 4 + 2},
        Fusion{"SwiGLUQuantize", 8 + 2 + 2 + 2, 8 + 2},
        // the same, and partial sums
        Fusion{"SiluBiasGradQuantize", 8 + 2 + 2 + 2, 8 + 2},
        // codes are written, read, and written as their transpose; scale and
        // bias, or scale twice, count for each row
        Fusion{"LayerNormalizationQuantize", 12 + 2 + 2 + 2, 12 + 3},
        Fusion{"AddRMSNormGradQuantize", 20 + 2 + 2 + 2, 20 + 3},
        Fusion{"RMSNormQuantize", 8 + 2 + 2 + 2, 8 + 3},
        // y is written and read, or the norm's scale is read twice; no
        // transpose
        Fusion{"RMSNormQuantizeRows", 8 + 2 + 2 + 1, 8 + 4 + 1}),
    [](const auto& info) { return std::string(info.param.op); });

}  // namespace
}  // namespace onnx_fp8
