// SPDX-License-Identifier: Apache-2.0
//
// QuantizeBlock on the GPU gives the CPU's bits, for each way in which threads
// hold a block, and for all that x may be kept as.
#include <gtest/gtest.h>

#include <cmath>
#include <span>
#include <string>
#include <utility>

#include "base/check.h"
#include "providers/cuda/cuda_provider.h"
#include "providers/passes/store_narrow.h"
#include "tests/cuda/beside_cpu.h"
#include "tests/graph/parse.h"
#include "tests/providers/cpu/random_feeds.h"
#include "tests/providers/cpu/special_values.h"

namespace onnx_fp8 {
namespace {

struct BlockSizes {
  int64_t rows, columns;
};

// 0: the whole axis.
const BlockSizes kQuantizedBlocks[] = {
    {1, 0},  {0, 1},  {1, 128}, {128, 1}, {128, 128}, {1, 32},  {32, 1},
    {1, 64}, {64, 1}, {0, 0},   {2, 3},   {2, 16},    {150, 7}, {2, 48}};

int64_t BlocksAlong(int64_t size, int64_t block) {
  return block == 0 ? 1 : (size + block - 1) / block;
}

// x of that shape, rounded to `kept` unless that is a float of 32 bits.
struct InputText {
  std::string text, name;
};
InputText RoundedInput(const std::string& shape, DType kept) {
  std::string text = Concat("input x: float", shape, "\n");
  if (kept == DType::kFloat) return {text, "x"};
  text += Concat("r: float", shape,
                 " = onnx_fp8.RoundTo<to=", static_cast<int>(kept), ">(x)\n");
  return {text, "r"};
}

// Such an x in these blocks.
std::shared_ptr<Graph> BlockQuantizersOf(const BlockSizes& x, DType kept,
                                         std::span<const BlockSizes> blocks) {
  std::string shape = Concat("[", x.rows, ",", x.columns, "]");
  auto [text, read] = RoundedInput(shape, kept);
  int i = 0;
  for (const BlockSizes& b : blocks) {
    bool e4m3 = i % 2 == 0, e8m0 = i % 3 == 1;
    text += Concat(
        "q", i, ": ", e4m3 ? "float8e4m3fn" : "float8e5m2", shape, ", s", i,
        e8m0 ? ": float8e8m0[" : ": float[", BlocksAlong(x.rows, b.rows), ",",
        BlocksAlong(x.columns, b.columns), "], a", i,
        ": float[] = onnx_fp8.QuantizeBlock<to=",
        e4m3 ? "17, q_max=448.0" : "19, q_max=57344.0", ", block_rows=", b.rows,
        ", block_columns=", b.columns, ", pow2=", i % 3,
        ", scale_to=", e8m0 ? 24 : 1, ">(", read, ")\n");
    ++i;
  }
  std::shared_ptr<Graph> graph = ParseGraph(text);
  for (Node& node : graph->nodes()) {
    if (!node.IsOurs("QuantizeBlock")) continue;
    for (Value* y : node.outputs()) graph->outputs.push_back(y);
  }
  return graph;
}

// Numbers of many magnitudes. A NaN that is kept in 16 bits loses its sign on a
// GPU.
Tensor Wide(const Graph& graph, bool finite, bool signs) {
  Tensor x = RandomFeeds(graph, {}).at("x");
  auto* data = x.data<float>();
  for (int64_t i = 0; i < x.size(); ++i) {
    data[i] = std::ldexp(data[i], static_cast<int>(i * 7 % 23) - 12);
  }
  if (finite || x.size() == 0) return x;
  data[x.size() / 3] = kNaN;
  data[x.size() / 2] = -kInfinity;
  if (signs) data[x.size() * 2 / 3] = -kNaN;
  data[x.size() - 1] = kInfinity;
  return x;
}

void ExpectCpusBits(const BlockSizes& x, std::span<const BlockSizes> blocks) {
  for (DType kept : {DType::kFloat, DType::kBFloat16, DType::kFloat16}) {
    auto for_cpu = BlockQuantizersOf(x, kept, blocks);
    auto for_cuda = BlockQuantizersOf(x, kept, blocks);
    StoreNarrow(*for_cuda, CudaKernels());
    for (bool finite : {true, false}) {
      ExpectCpusBytes(for_cpu, for_cuda,
                      {{"x", Wide(*for_cpu, finite, kept == DType::kFloat)}},
                      Concat(Name(kept), finite ? "" : ", not finite"));
    }
  }
}

class CudaQuantizeBlockTest : public testing::TestWithParam<BlockSizes> {};

TEST_P(CudaQuantizeBlockTest, GivesTheCpusBits) {
  ExpectCpusBits(GetParam(), kQuantizedBlocks);
}

// Rows that threads read piece by piece, and that begin anywhere.
TEST(CudaQuantizeBlock, LongRows) {
  const BlockSizes rows[] = {{1, 0}};
  ExpectCpusBits({64, 16387}, rows);
}

TEST(CudaQuantizeBlock, LongestRows) {
  const BlockSizes rows[] = {{1, 0}};
  ExpectCpusBits({65, 2 * 16384 + 8}, rows);
}

// make(kept, false) returns a graph of the op, and make(kept, true) a graph of
// the nodes that define it. Both give the same bytes.
template <typename Make>
void ExpectBitsOfDefinition(const Make& make) {
  for (DType kept : {DType::kFloat, DType::kBFloat16, DType::kFloat16}) {
    std::shared_ptr<Graph> for_cpu = make(kept, true);
    std::shared_ptr<Graph> for_cuda = make(kept, false);
    StoreNarrow(*for_cuda, CudaKernels());
    for (bool finite : {true, false}) {
      ExpectCpusBytes(for_cpu, for_cuda,
                      {{"x", Wide(*for_cpu, finite, kept == DType::kFloat)}},
                      Concat(Name(kept), finite ? "" : ", not finite"));
    }
  }
}

// x in parts of columns: QuantizeColumns, or what it says: QuantizeBlock of the
// transpose.
std::shared_ptr<Graph> ColumnQuantizersOf(const BlockSizes& x, DType kept,
                                          bool by_definition) {
  std::string shape = Concat("[", x.rows, ",", x.columns, "]");
  std::string turned = Concat("[", x.columns, ",", x.rows, "]");
  auto [text, read] = RoundedInput(shape, kept);
  if (by_definition) {
    text +=
        Concat("t: float", turned, " = Transpose<perm=[1,0]>(", read, ")\n");
    read = "t";
  }
  int i = 0;
  for (int64_t block : {0, 128, 64, 32, 7, 150, 0}) {
    bool e4m3 = i % 2 == 0, e8m0 = i % 3 == 1;
    text +=
        Concat("q", i, e4m3 ? ": float8e4m3fn" : ": float8e5m2", turned, ", s",
               i, e8m0 ? ": float8e8m0[" : ": float[", x.columns, ",",
               BlocksAlong(x.rows, block), "], a", i, ": float[] = onnx_fp8.",
               by_definition ? "QuantizeBlock" : "QuantizeColumns",
               "<to=", e4m3 ? "17, q_max=448.0" : "19, q_max=57344.0",
               ", block_rows=1, block_columns=", block, ", pow2=", i % 3,
               ", scale_to=", e8m0 ? 24 : 1, ">(", read, ")\noutput q", i,
               "\noutput s", i, "\noutput a", i, "\n");
    ++i;
  }
  return ParseGraph(text);
}

class CudaQuantizeColumnsTest : public testing::TestWithParam<BlockSizes> {};

TEST_P(CudaQuantizeColumnsTest, GivesTheCpusBits) {
  ExpectBitsOfDefinition([](DType kept, bool by_definition) {
    return ColumnQuantizersOf(GetParam(), kept, by_definition);
  });
}

// The sizes cover one tile, tiles that end in the middle, rows that begin
// anywhere, words of the transpose that can't be moved together, and columns of
// several tiles.
INSTANTIATE_TEST_SUITE_P(
    All, CudaQuantizeColumnsTest,
    testing::Values(BlockSizes{4, 4}, BlockSizes{128, 128},
                    BlockSizes{132, 260}, BlockSizes{128, 20},
                    BlockSizes{16, 400}, BlockSizes{260, 12},
                    BlockSizes{672, 136}),
    [](const auto& info) {
      return Concat("x", info.param.rows, "_", info.param.columns);
    });

// Rows and columns of x, or parts of them: QuantizeBlockTranspose, or the two
// nodes that it is.
std::shared_ptr<Graph> BothWaysQuantizersOf(const BlockSizes& x, DType kept,
                                            bool by_definition) {
  std::string shape = Concat("[", x.rows, ",", x.columns, "]");
  std::string turned = Concat("[", x.columns, ",", x.rows, "]");
  auto [text, read] = RoundedInput(shape, kept);
  if (by_definition) {
    text +=
        Concat("t: float", turned, " = Transpose<perm=[1,0]>(", read, ")\n");
  }
  int i = 0;
  for (int64_t block : {0, 128, 64, 32, 0}) {
    bool e4m3 = i % 2 == 0, e8m0 = i % 3 == 1;
    std::string type = e4m3 ? "float8e4m3fn" : "float8e5m2";
    std::string scale = e8m0 ? "float8e8m0" : "float";
    auto named = [&](const std::string& name, const std::string& its_type,
                     const std::string& its_shape) {
      return Concat(name, i, ": ", its_type, its_shape);
    };
    auto scales = [&](int64_t size, int64_t along) {
      return Concat("[", size, ",", BlocksAlong(along, block), "]");
    };
    std::string q = named("q", type, shape), a = named("a", "float", "[]");
    std::string s = named("s", scale, scales(x.rows, x.columns));
    std::string qt = named("qt", type, turned);
    std::string st = named("st", scale, scales(x.columns, x.rows));
    std::string attributes =
        Concat("<to=", e4m3 ? "17, q_max=448.0" : "19, q_max=57344.0",
               ", block_rows=1, block_columns=", block, ", pow2=", i % 3,
               ", scale_to=", e8m0 ? 24 : 1, ">");
    if (by_definition) {
      text += Concat(q, ", ", s, ", ", a, " = onnx_fp8.QuantizeBlock",
                     attributes, "(", read, ")\n", qt, ", ", st,
                     " = onnx_fp8.QuantizeBlock", attributes, "(t)\n");
    } else {
      text += Concat(q, ", ", s, ", ", a, ", ", qt, ", ", st,
                     " = onnx_fp8.QuantizeBlockTranspose", attributes, "(",
                     read, ")\n");
    }
    for (const char* name : {"q", "s", "a", "qt", "st"}) {
      text += Concat("output ", name, i, "\n");
    }
    ++i;
  }
  return ParseGraph(text);
}

class CudaQuantizeBlockTransposeTest
    : public testing::TestWithParam<BlockSizes> {};

TEST_P(CudaQuantizeBlockTransposeTest, GivesTheCpusBits) {
  ExpectBitsOfDefinition([](DType kept, bool by_definition) {
    return BothWaysQuantizersOf(GetParam(), kept, by_definition);
  });
}

// The sizes cover one tile, tiles that end in the middle, rows that begin
// anywhere, and rows and columns of several strips.
INSTANTIATE_TEST_SUITE_P(
    All, CudaQuantizeBlockTransposeTest,
    testing::Values(BlockSizes{4, 4}, BlockSizes{128, 128},
                    BlockSizes{132, 260}, BlockSizes{128, 20},
                    BlockSizes{16, 600}, BlockSizes{260, 12},
                    BlockSizes{400, 136}),
    [](const auto& info) {
      return Concat("x", info.param.rows, "_", info.param.columns);
    });

TEST(CudaQuantizeBlockTranspose, RefusesWhatItCantWrite) {
  auto error = [](int64_t rows, int64_t block) {
    return ErrorOnGpu(
        Concat("input x: float[", rows, ",8]\nq: float8e4m3fn[", rows,
               ",8], s: float[", rows, ",", BlocksAlong(8, block),
               "], a: float[], t: float8e4m3fn[8,", rows,
               "] = onnx_fp8.QuantizeBlockTranspose<to=17, q_max=448.0, "
               "block_rows=1, block_columns=",
               block, ", pow2=0, scale_to=1>(x)\noutput q\noutput t\n"));
  };
  EXPECT_NE(error(8, 4).find("block_columns of 0, 32, 64 or 128, got 4"),
            std::string::npos)
      << error(8, 4);
  EXPECT_NE(error(6, 0).find("multiples of 4, got 6 and 8"), std::string::npos)
      << error(6, 0);
}

TEST(CudaQuantizeColumns, RefusesWhatItCantWrite) {
  std::string text = R"(input x: float[6,8]
q: float8e4m3fn[8,6], s: float[8,1], a: float[] = onnx_fp8.QuantizeColumns<to=17, q_max=448.0, block_rows=1, block_columns=0, pow2=0, scale_to=1>(x)
output q
)";
  EXPECT_NE(ErrorOnGpu(text).find("multiples of 4, got 6 and 8"),
            std::string::npos)
      << ErrorOnGpu(text);
}

// Tiles that end in the middle, rows that begin anywhere, all numbers of warps
// of a row, rows that no block of threads holds, and columns of several strips.
INSTANTIATE_TEST_SUITE_P(
    All, CudaQuantizeBlockTest,
    testing::Values(BlockSizes{1, 1}, BlockSizes{3, 5}, BlockSizes{17, 0},
                    BlockSizes{0, 40}, BlockSizes{1, 300}, BlockSizes{130, 136},
                    BlockSizes{140, 35}, BlockSizes{129, 132},
                    BlockSizes{3, 1030}, BlockSizes{260, 24},
                    BlockSizes{2, 2056}, BlockSizes{3, 4096},
                    BlockSizes{1, 8197}, BlockSizes{1, 16384},
                    BlockSizes{1, 16400}),
    [](const auto& info) {
      return Concat("x", info.param.rows, "_", info.param.columns);
    });

}  // namespace
}  // namespace onnx_fp8
