// SPDX-License-Identifier: Apache-2.0
//
// The bytes that QuantizeBlock reads, by the blocks that have a scale.
#include <gtest/gtest.h>

#include "base/check.h"
#include "providers/cuda/cuda_provider.h"
#include "providers/run/executor.h"
#include "tests/cuda/emulation/emulation.h"
#include "tests/graph/parse.h"
#include "tests/providers/cpu/random_feeds.h"

namespace onnx_fp8 {
namespace {

struct CountedBlock {
  int64_t rows, columns;  // 0: the whole axis
};

constexpr CountedBlock kCountedBlocks[] = {
    {1, 0},  {0, 1},  {1, 128}, {128, 1}, {128, 128}, {1, 32}, {32, 1},
    {1, 64}, {64, 1}, {0, 0},   {2, 3},   {2, 16},    {150, 7}};

int64_t CountAlong(int64_t size, int64_t block) {
  return block == 0 ? 1 : (size + block - 1) / block;
}

double BytesRead(const std::string& text) {
  std::shared_ptr<Graph> graph = ParseGraph(text);
  for (Value* y : graph->nodes().front().outputs()) {
    graph->outputs.push_back(y);
  }
  auto cuda = MakeCudaProvider();
  Executor executor(graph, *cuda);
  TensorMap state;
  emulation::ResetCounts();
  executor.Run(RandomFeeds(*graph, {}), state);
  cuda->Synchronize();
  double read = 0;
  for (const auto& [kernel, traffic] : emulation::Traffic()) {
    read += static_cast<double>(traffic.bytes_read);
  }
  return read;
}

// What a block of threads holds is read once.
TEST(CudaQuantizeBlock, ReadsOnceWhatThreadsHold) {
  if (!emulation::Checked()) return;  // only checked builds count
  constexpr int64_t kRows = 128, kColumns = 256;
  for (const CountedBlock& b : kCountedBlocks) {
    std::string text = Concat(
        "input x: float[", kRows, ",", kColumns, "]\nq: float8e4m3fn[", kRows,
        ",", kColumns, "], s: float[", CountAlong(kRows, b.rows), ",",
        CountAlong(kColumns, b.columns),
        "], a: float[] = onnx_fp8.QuantizeBlock<to=17, q_max=448.0, "
        "block_rows=",
        b.rows, ", block_columns=", b.columns, ", pow2=0, scale_to=1>(x)\n");
    double read = BytesRead(text);
    bool parts =
        b.rows % 32 <= 1 && b.columns % 32 <= 1 && b.rows + b.columns > 1;
    bool columns = b.rows == 0 && b.columns == 1;
    double once = 4.0 * kRows * kColumns;
    if (parts && !columns) {
      EXPECT_LE(read, 1.01 * once) << b.rows << " x " << b.columns;
    } else {
      // Threads read the factors of columns, or of each element.
      EXPECT_LE(read, (columns ? 2.2 : 4.3) * once)
          << b.rows << " x " << b.columns;
    }
  }
}

TEST(CudaQuantizeColumns, ReadsOnceWhatThreadsHold) {
  if (!emulation::Checked()) return;
  constexpr int64_t kRows = 256, kColumns = 256;
  for (int64_t block : {0, 32, 64, 128}) {
    double read = BytesRead(
        Concat("input x: float[", kRows, ",", kColumns, "]\nq: float8e4m3fn[",
               kColumns, ",", kRows, "], s: float[", kColumns, ",",
               CountAlong(kRows, block),
               "], a: float[] = onnx_fp8.QuantizeColumns<to=17, q_max=448.0, "
               "block_rows=1, block_columns=",
               block, ", pow2=0, scale_to=1>(x)\n"));
    EXPECT_LE(read, (block == 0 ? 2.3 : 1.01) * 4.0 * kRows * kColumns)
        << block;
  }
}

TEST(CudaQuantizeBlockTranspose, ReadsOnceWhatThreadsHold) {
  if (!emulation::Checked()) return;
  constexpr int64_t kRows = 256, kColumns = 256;
  for (int64_t block : {0, 32, 64, 128}) {
    double read = BytesRead(Concat(
        "input x: float[", kRows, ",", kColumns, "]\nq: float8e4m3fn[", kRows,
        ",", kColumns, "], s: float[", kRows, ",", CountAlong(kColumns, block),
        "], a: float[], qt: float8e4m3fn[", kColumns, ",", kRows,
        "] = onnx_fp8.QuantizeBlockTranspose<to=17, q_max=448.0, "
        "block_rows=1, block_columns=",
        block, ", pow2=0, scale_to=1>(x)\n"));
    // Threads read the factors of their rows and columns.
    EXPECT_LE(read, (block == 0 ? 2.5 : 1.01) * 4.0 * kRows * kColumns)
        << block;
  }
}

}  // namespace
}  // namespace onnx_fp8
