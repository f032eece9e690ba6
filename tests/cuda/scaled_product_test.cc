// SPDX-License-Identifier: Apache-2.0
//
// FP8 products on the GPU beside the CPU: every kind of blocks of scales,
// orientation and size.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "base/check.h"
#include "providers/cpu/cpu_provider.h"
#include "providers/cuda/cuda_provider.h"
#include "providers/passes/expand_missing.h"
#include "providers/passes/k_major.h"
#include "providers/passes/store_narrow.h"
#include "tests/cuda/beside_cpu.h"
#include "tests/graph/parse.h"

namespace onnx_fp8 {
namespace {

// Elements of a block along the outer axis and along k; 0: the whole axis.
struct Block {
  int64_t outer, k;
};

struct Blocks {
  const char* name;
  Block a, b;
};

const Blocks kBlocks[] = {
    {"one", {0, 0}, {0, 0}},
    {"outer", {1, 0}, {1, 0}},
    {"outer_and_one", {1, 0}, {0, 0}},
    {"vectors", {1, 128}, {1, 128}},
    {"vectors_and_blocks", {1, 128}, {128, 128}},
    {"blocks_and_vectors", {128, 128}, {1, 128}},
    {"blocks", {128, 128}, {128, 128}},
    {"others", {1, 64}, {64, 128}},
};

struct Size {
  int64_t m, n, k;
};

// Whole units, one block and a part, no whole units, one block of k.
const Size kSizes[] = {
    {48, 64, 256}, {144, 272, 400}, {131, 47, 165}, {16, 32, 16}, {5, 7, 3}};

// The line that quantizes x, whose rows of memory run along k unless
// `k_is_rows`; and the attributes of its blocks in the product.
std::string Quantized(char x, const Block& block, int64_t outer, int64_t k,
                      bool k_is_rows, const char* codes, int64_t to) {
  int64_t rows = outer, columns = k, down = block.outer, across = block.k;
  if (k_is_rows) {
    std::swap(rows, columns);
    std::swap(down, across);
  }
  auto count = [](int64_t size, int64_t of) {
    return of == 0 ? 1 : (size + of - 1) / of;
  };
  return Concat("q", x, ": ", codes, "[", rows, ",", columns, "], s", x,
                ": float[", count(rows, down), ",", count(columns, across),
                "], m", x, ": float[] = onnx_fp8.QuantizeBlock<to=", to,
                ", scale_to=1, pow2=0, q_max=448.0, block_rows=", down,
                ", block_columns=", across, ">(", x, ")\n");
}

std::string BlockAttributes(char x, const Block& block, bool k_is_rows) {
  return Concat(x, "_block_rows=", k_is_rows ? block.k : block.outer, ", ", x,
                "_block_columns=", k_is_rows ? block.outer : block.k);
}

// y = op(a) · op(b) [+ bias, or + a matrix], or y rounded to bfloat16.
// `adds`: "", "Bias" or "Add".
std::string ProductText(const Blocks& blocks, const Size& z, bool trans_a,
                        bool trans_b, const std::string& adds, bool rounded) {
  auto input = [](char x, int64_t outer, int64_t k, bool k_is_rows) {
    return Concat("input ", x, ": float[", k_is_rows ? k : outer, ",",
                  k_is_rows ? outer : k, "]\n");
  };
  std::string text = "graph \"g\" opset 24\n";
  text += input('a', z.m, z.k, trans_a) + input('b', z.n, z.k, !trans_b);
  std::string rows = adds == "Add" ? Concat(z.m, ",") : "";
  if (!adds.empty()) text += Concat("input c: float[", rows, z.n, "]\n");
  text += Quantized('a', blocks.a, z.m, z.k, trans_a, "float8e5m2", 19);
  text += Quantized('b', blocks.b, z.n, z.k, !trans_b, "float8e4m3fn", 17);
  text +=
      Concat("y: float[", z.m, ",", z.n, "] = onnx_fp8.ScaledMatMulBlock", adds,
             "<transA=", trans_a ? 1 : 0, ", transB=", trans_b ? 1 : 0, ", ",
             BlockAttributes('a', blocks.a, trans_a), ", ",
             BlockAttributes('b', blocks.b, !trans_b), ">(qa, sa, qb, sb",
             adds.empty() ? "" : ", c", ")\n");
  if (!rounded) return text + "output y\n";
  return text + Concat("r: float[", z.m, ",", z.n,
                       "] = onnx_fp8.RoundTo<to=16>(y)\noutput r\n");
}

class ScaledProductTest : public testing::TestWithParam<Blocks> {};

TEST_P(ScaledProductTest, OfFloats) {
  for (const Size& z : kSizes) {
    for (int orientation = 0; orientation < 4; ++orientation) {
      std::string text =
          ProductText(GetParam(), z, orientation % 2 == 1, orientation / 2 == 1,
                      z.m > 100 ? "Bias" : "", false);
      SCOPED_TRACE(text);
      ExpectCpusResults(ParseGraph(text), ParseGraph(text), 4e-6);
    }
  }
}

// Quantizers whose columns have scales write the transpose.
TEST_P(ScaledProductTest, OfColumns) {
  const Blocks& blocks = GetParam();
  for (const Size& z : kSizes) {
    bool whole = z.m % 16 == 0 && z.n % 16 == 0 && z.k % 16 == 0;
    std::string text =
        ProductText(blocks, z, true, false, z.m > 100 ? "Bias" : "", false);
    SCOPED_TRACE(text);
    std::shared_ptr<Graph> turned = ParseGraph(text);
    MakeKMajor(*turned, CudaKernels());
    auto is_turned = [](const Node& node) {
      return node.op == "QuantizeColumns";
    };
    int64_t wanted =
        (blocks.a.outer == 1 ? 1 : 0) + (blocks.b.outer == 1 ? 1 : 0);
    EXPECT_EQ(std::ranges::count_if(turned->nodes(), is_turned),
              whole ? wanted : 0);
    ExpectCpusResults(ParseGraph(text), turned, 4e-6);
  }
}

TEST_P(ScaledProductTest, AddedToAMatrix) {
  for (const Size& z : kSizes) {
    std::string text = ProductText(GetParam(), z, false, true, "Add", false);
    SCOPED_TRACE(text);
    std::shared_ptr<Graph> by_body = ParseGraph(text);
    auto evaluator = MakeCpuEvaluator();
    ExpandMissing(*by_body, CpuKernels(), {}, evaluator.get());
    ExpectCpusResults(by_body, ParseGraph(text), 4e-6);
  }
}

// Where a float lies between two 16-bit floats, both sides may round it to
// either.
TEST_P(ScaledProductTest, OfBFloat16) {
  for (const Size& z : kSizes) {
    std::string text = ProductText(GetParam(), z, false, true, "", true);
    SCOPED_TRACE(text);
    std::shared_ptr<Graph> narrow = ParseGraph(text);
    StoreNarrow(*narrow, CudaKernels());
    ExpectCpusResults(ParseGraph(text), narrow, 8e-3);
  }
}

// A layer's three products, of quantizers that write both orientations.
TEST(KMajorProducts, AreTheCpus) {
  for (const auto& [rows, dtype] :
       {std::pair<int64_t, const char*>{48, "float8e4m3fn"},
        {272, "float8e5m2"}}) {
    std::string x_shape = Concat("[2,", rows / 2, ",144]");
    std::string dy_shape = Concat("[", rows, ",400]");
    int to = dtype[7] == '4' ? 17 : 19;
    std::string text = Concat(
        "input x: float", x_shape, "\ninput w: float[400,144]\ninput dy: float",
        dy_shape, "\nconst given: float[] = {0.01}\nconst own: float[] = {0}\n",
        "qx: float8e4m3fn", x_shape,
        ", sx: float[], ax: float[] = onnx_fp8.QuantizeTensor<to=17, "
        "q_max=448.0>(x)\n"
        "qw: float8e4m3fn[400,144], sw: float[], aw: float[] = "
        "onnx_fp8.QuantizeWith<to=17, q_max=448.0>(w, own)\n"
        "qd: ",
        dtype, dy_shape,
        ", sd: float[], ad: float[] = onnx_fp8.QuantizeWith<to=", to,
        ", q_max=448.0>(dy, given)\n"
        "dx: float[",
        rows,
        ",144] = onnx_fp8.ScaledMatMul<transA=0, transB=0>(qd, sd, qw, sw)\n"
        "dw: float[400,144] = onnx_fp8.ScaledMatMul<transA=1, transB=0>"
        "(qd, sd, qx, sx)\n"
        "output dx\noutput dw\noutput ax\noutput aw\noutput ad\n"
        "output sw\n");
    std::shared_ptr<Graph> turned = ParseGraph(text);
    MakeKMajor(*turned, CudaKernels());
    EXPECT_EQ(turned->nodes().front().op, "QuantizeTensorTranspose");
    ExpectCpusResults(ParseGraph(text), turned, 4e-6);
  }
}

// The transpose itself, of tiles that are not whole.
TEST(KMajorProducts, TransposesHaveTheBytes) {
  for (const auto& [rows, columns] :
       {std::pair{4, 4}, {132, 260}, {128, 20}, {16, 400}}) {
    std::string x = Concat("[", rows, ",", columns, "]");
    std::string t = Concat("[", columns, ",", rows, "]");
    std::string input = Concat("input x: float", x, "\n");
    std::string on_cpu = Concat(
        input, "q: float8e4m3fn", x,
        ", s: float[], a: float[] = onnx_fp8.QuantizeTensor<to=17, "
        "q_max=448.0>(x)\nt: float8e4m3fn",
        t, " = Transpose<perm=[1,0]>(q)\noutput q\noutput t\noutput s\n");
    std::string on_cuda =
        Concat(input, "q: float8e4m3fn", x,
               ", s: float[], a: float[], t: float8e4m3fn", t,
               " = onnx_fp8.QuantizeTensorTranspose<to=17, q_max=448.0>(x)\n"
               "output q\noutput t\noutput s\n");
    SCOPED_TRACE(on_cuda);
    ExpectCpusResults(ParseGraph(on_cpu), ParseGraph(on_cuda), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(All, ScaledProductTest, testing::ValuesIn(kBlocks),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace onnx_fp8
