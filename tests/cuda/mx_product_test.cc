// SPDX-License-Identifier: Apache-2.0
//
// Products with a scale for 32 elements of k, in float8e8m0: on Blackwell by
// cuBLASLt, on Hopper of decoded operands. Scales that a recipe keeps as floats
// become such bytes (providers/passes/mx_scales.h).
#include <gtest/gtest.h>

#include <cmath>
#include <ostream>

#include "base/check.h"
#include "providers/cuda/cuda_provider.h"
#include "tests/cuda/beside_cpu.h"
#include "tests/cuda/emulation/emulation.h"
#include "tests/graph/parse.h"
#include "tests/support/corpus.h"
#include "tests/training/corpus_case.h"
#include "training/session/make_session.h"

namespace onnx_fp8 {
namespace {

// The GPU of a test has this compute capability.
class MxOnGpu {
 public:
  explicit MxOnGpu(int major) { emulation::SetComputeCapability(major); }
  ~MxOnGpu() { emulation::SetComputeCapability(9); }
  MxOnGpu(const MxOnGpu&) = delete;
  MxOnGpu& operator=(const MxOnGpu&) = delete;
};

// An operand, quantized, and the attributes of its blocks.
std::string QuantizedText(char x, int64_t outer, int64_t k, bool k_is_rows) {
  int64_t rows = k_is_rows ? k : outer, columns = k_is_rows ? outer : k;
  int64_t down = k_is_rows ? 32 : 1, across = k_is_rows ? 1 : 32;
  auto count = [](int64_t size, int64_t of) { return (size + of - 1) / of; };
  return Concat("input ", x, ": float[", rows, ",", columns, "]\n", "q", x,
                ": float8e4m3fn[", rows, ",", columns, "], s", x,
                ": float8e8m0[", count(rows, down), ",", count(columns, across),
                "], m", x, ": float[] = onnx_fp8.QuantizeBlock<to=17, ",
                "scale_to=24, pow2=1, q_max=448.0, block_rows=", down,
                ", block_columns=", across, ">(", x, ")\n");
}

std::string BlocksText(char x, bool k_is_rows) {
  return Concat(x, "_block_rows=", k_is_rows ? 32 : 1, ", ", x,
                "_block_columns=", k_is_rows ? 1 : 32);
}

int64_t LaunchesOf(const std::string& kernel) {
  int64_t launches = 0;
  for (const auto& [name, traffic] : emulation::Traffic()) {
    if (name.find(kernel) != name.npos) launches += traffic.launches;
  }
  return launches;
}

struct MxSize {
  int64_t m, n, k;
};

class MxProducts : public testing::TestWithParam<int> {};

TEST_P(MxProducts, AreTheCpus) {
  MxOnGpu gpu(GetParam());
  for (const MxSize& z :
       {MxSize{48, 64, 256}, {144, 272, 160}, {131, 47, 165}, {5, 7, 40}}) {
    for (int orientation = 0; orientation < 4; ++orientation) {
      bool trans_a = orientation % 2 == 1, trans_b = orientation / 2 == 1;
      std::string text = Concat(
          "graph \"g\" opset 24\n", QuantizedText('a', z.m, z.k, trans_a),
          QuantizedText('b', z.n, z.k, !trans_b), "input bias: float[", z.n,
          "]\ny: float[", z.m, ",", z.n,
          "] = onnx_fp8.ScaledMatMulBlockBias<transA=", trans_a ? 1 : 0,
          ", transB=", trans_b ? 1 : 0, ", ", BlocksText('a', trans_a), ", ",
          BlocksText('b', !trans_b), ">(qa, sa, qb, sb, bias)\noutput y\n");
      SCOPED_TRACE(text);
      emulation::ResetCounts();
      ExpectCpusResults(ParseGraph(text), ParseGraph(text), 4e-6);
      bool blackwell = GetParam() == 10;
      EXPECT_EQ(LaunchesOf("PackMxKernel"), blackwell ? 2 : 0);
      EXPECT_EQ(LaunchesOf("Dequantize"), blackwell ? 0 : 2);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, MxProducts, testing::Values(9, 10),
                         testing::PrintToStringParamName());

// The loss of the second step of a LLaMA.
float LossOf(const char* recipe, int64_t grad_accum = 1) {
  for (const CorpusFile& file : CorpusFiles()) {
    bool wanted = file.fixture && file.name == "llama" && file.variant == "l17";
    if (!wanted) continue;
    CorpusCase c(file);
    c.options.recipe = ParseRecipe(recipe);
    c.options.grad_accum = grad_accum;
    auto session = MakeSession(c.options, MakeCudaProvider());
    std::vector<TensorMap> batches(static_cast<size_t>(grad_accum), c.feeds);
    session->Step(batches, 1e-3);
    return session->Step(batches, 1e-3).loss;
  }
  return 0;
}

// Recipes whose scale modes only Hopper has work on Blackwell, too.
TEST(MxTraining, LossesOnBlackwellAreThoseOnHopper) {
  for (const char* recipe : {"mxfp8", "rowwise", "blockwise"}) {
    float losses[2];
    for (int major : {9, 10}) {
      MxOnGpu gpu(major);
      losses[major - 9] = LossOf(recipe);
    }
    EXPECT_NEAR(losses[1], losses[0], 1e-3 * std::fabs(losses[0])) << recipe;
  }
}

// What the GPU does with a recipe.
struct Work {
  float loss;
  int64_t packs, decodes;
  bool operator==(const Work&) const = default;
};

void PrintTo(const Work& w, std::ostream* out) {
  *out << w.loss << ", " << w.packs << " packs, " << w.decodes << " decodes";
}

Work WorkOf(const char* recipe, int64_t grad_accum) {
  emulation::ResetCounts();
  float loss = LossOf(recipe, grad_accum);
  return {loss, LaunchesOf("PackMxKernel"), LaunchesOf("Dequantize")};
}

// Whether a recipe keeps the powers of two as floats or as bytes.
TEST(MxTraining, ScalesAreBytesOnTheGpu) {
  for (auto [major, grad_accum] : {std::pair{9, 1}, {10, 2}}) {
    MxOnGpu gpu(major);
    Work work = WorkOf("mxfp8", grad_accum);
    EXPECT_EQ(work, WorkOf("mxfp8,scales:e8m0", grad_accum));
    EXPECT_EQ(work.packs > 0, major == 10);
  }
}

}  // namespace
}  // namespace onnx_fp8
