// SPDX-License-Identifier: Apache-2.0
//
// QuantizeBlock and QuantizeColumns. Bytes and scales are the CPU's. One kernel
// quantizes many tensors. Traffic: held_blocks.cu's, turned_blocks.cu's and
// other_blocks.cu's.
#include <algorithm>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "providers/block_grid.h"
#include "providers/cuda/core/result.h"
#include "providers/cuda/fp8/blocks.h"
#include "providers/cuda/fp8/column_sums.h"
#include "providers/cuda/fp8/held.h"
#include "providers/cuda/register.h"
#include "providers/scaled_products.h"

namespace onnx_fp8::cuda {
namespace {

__global__ void __launch_bounds__(kThreads) FactorsKernel(Many<Blocks> many) {
  int tensor = TensorOf(many, blockIdx.x);
  const Blocks b = many.tensors[tensor];
  int64_t block = blockIdx.x - many.begin[tensor];
  int64_t i = block * kThreads + threadIdx.x;
  if (i == 0 && b.amax_out) {
    *b.amax_out = b.amax->non_finite ? std::numeric_limits<float>::infinity()
                                     : __uint_as_float(b.amax->finite);
  }
  if (!b.factors || i >= b.count) return;
  float factor = BlockFactor(b.format, b.factors[i]);
  b.factors[i] = factor;
  if (!b.scales) return;
  StoreScale(b.format, b.scales, ScaleAt(b, i / b.across, i % b.across),
             factor);
}

// The largest group of neighboring lanes whose columns always lie in one block;
// 0: not even the four columns of one lane do.
int LanesTogether(const BlockGrid& grid) {
  if (grid.across == 1) return kLanes;
  if (grid.block_columns % kPerThread != 0) return 0;
  int lanes = 1;
  while (lanes < kLanes && grid.block_columns % (2 * lanes * kPerThread) == 0) {
    lanes *= 2;
  }
  return lanes;
}

// Fewer long rows would leave most of a GPU idle.
constexpr int64_t kLeastLongRows = 64;

// A tensor's way, and what goes with it.
void ChooseWay(const BlockGrid& grid, Blocks& b) {
  int64_t width = IsNarrow(b) ? kWidth<Kept::kBFloat16> : kWidth<Kept::kFloat>;
  auto address = [](const void* p) { return reinterpret_cast<uintptr_t>(p); };
  bool aligned = address(b.x.data) % 16 == 0 && address(b.q) % 8 == 0;
  b.way = Way::kOthers;
  // Blocks without elements have scales, too.
  if (grid.rows == 0 || grid.columns == 0) return;
  auto has = [](int64_t block, int64_t size, int64_t wanted) {
    return block == wanted || (block == size && size <= wanted);
  };
  auto is_part = [](int64_t block) {
    return block == 32 || block == 64 || block == kTileColumns;
  };
  auto logarithm = [](int64_t power) {
    int shift = 0;
    while (int64_t{1} << shift < power) ++shift;
    return shift;
  };
  // Rows may begin in the middle of a vector.
  int64_t held = grid.columns + (grid.columns % width == 0 ? 0 : width - 1);
  int64_t most = int64_t{32} * kHeld;  // that a warp holds
  bool is_held = held <= 16 * most;
  if (!b.turned && grid.block_rows == 1 && grid.across == 1 &&
      (is_held || grid.rows >= kLeastLongRows)) {
    b.way = is_held ? Way::kRows : Way::kLongRows;
    b.aligned = aligned;
    b.warps = 1;
    while (b.warps < 16 && b.warps * most < held) b.warps *= 2;
    return;
  }
  b.aligned = aligned && grid.columns % width == 0;
  if (!b.turned && has(grid.block_rows, grid.rows, kTileColumns) &&
      has(grid.block_columns, grid.columns, kTileColumns)) {
    b.way = Way::kSquares;
  } else if (!b.turned && grid.block_rows == 1 && is_part(grid.block_columns)) {
    b.way = Way::kRowParts;
    b.shift = logarithm(grid.block_columns / width);
  } else if (grid.block_columns == 1 && is_part(grid.block_rows)) {
    b.way = Way::kColumnParts;
    b.shift = logarithm(grid.block_rows / kRowsOfWarp);
  } else if (grid.block_columns == 1 && grid.down == 1) {
    bool is_short = grid.rows <= kTileColumns;
    b.way = is_short ? Way::kColumnParts : Way::kColumns;
    b.shift = logarithm(kSquareWarps);
  }
  if (b.turned && b.way == Way::kColumnParts) b.way = Way::kTurnedParts;
}

// The blocks of x: QuantizeColumns has attributes of the transpose.
BlockGrid GridIn(const KernelContext& ctx, bool turned) {
  if (!turned) {
    return GridOf(ctx, Operand(ctx, 0), "block_rows", "block_columns");
  }
  Check(ctx.Int("block_rows", 0) == 1, "[", ctx.Where(),
        "] expected block_rows of 1, got ", ctx.Int("block_rows", 0));
  return GridOf(ctx, Operand(ctx, 0), "block_columns", "block_rows");
}

Blocks BlocksOf(KernelContext& ctx) {
  bool turned = ctx.node().op == "QuantizeColumns";
  BlockGrid grid = GridIn(ctx, turned);
  auto to = static_cast<DType>(ctx.Int("to", 0));
  Blocks b = {.x = FloatsOf(ctx, 0),
              .rows = grid.rows,
              .columns = grid.columns,
              .block_rows = grid.block_rows,
              .block_columns = grid.block_columns,
              .down = grid.down,
              .across = grid.across,
              .count = grid.blocks(),
              .e4m3 = to == DType::kE4M3,
              .lanes_together = LanesTogether(grid),
              .amax = reinterpret_cast<DeviceAmax*>(ctx.OwnAmax(0)),
              .format = BlockFormatOf(ctx),
              .turned = turned};
  bool sums = turned && ctx.HasOut(kColumnSumsOfBlocks);
  Check(!sums || ctx.HasOut(0), "[", ctx.Where(),
        "] expected codes beside the sums of columns, got none");
  if (ctx.HasOut(0) && turned) {
    b.q_turned = TransposedTo(
        ctx, 0, to, cuda::SizesOf(Operand(ctx, 0).size(), grid.columns, false));
  } else if (ctx.HasOut(0)) {
    b.q = static_cast<uint8_t*>(ctx.Out(0, to, Operand(ctx, 0).shape()).raw());
  }
  if (ctx.HasOut(1)) {
    Shape scales = {grid.down, grid.across};
    if (turned) std::swap(scales[0], scales[1]);
    b.scales = ctx.Out(1, ScaleDType(b.format), scales).raw();
  }
  if (ctx.HasOut(2)) {
    b.amax_out = static_cast<float*>(ctx.Out(2, DType::kFloat, {}).raw());
  }
  ChooseWay(grid, b);
  return b;
}

bool ReadsTwice(const Blocks& b) {
  return b.way == Way::kColumns || b.way == Way::kOthers;
}
// The factors that it leaves for its second pass, up to whole vectors.
int64_t FactorsOf(const Blocks& b) {
  return ReadsTwice(b) ? RoundUp(b.count, kPerThread) : 0;
}

// The kernel's workspace: factors, and parts of sums behind them.
struct Workspace {
  size_t factors, sums;  // bytes

  size_t bytes() const { return factors + sums; }
};

Workspace WorkspaceOf(const KernelContext& ctx, const Blocks& b) {
  auto factors = static_cast<size_t>(FactorsOf(b)) * sizeof(float);
  if (!b.turned) return {factors, 0};
  return {factors, ColumnSumsBytes(ctx, kColumnSumsOfBlocks)};
}

size_t WorkspaceBytes(KernelContext& ctx) {
  return WorkspaceOf(ctx, BlocksOf(ctx)).bytes();
}

// Factors of a tensor.
struct Cleared {
  float* factors;
  int64_t count;
};

__global__ void __launch_bounds__(kThreads) ClearKernel(Many<Cleared> many) {
  int tensor = TensorOf(many, blockIdx.x);
  const Cleared own = many.tensors[tensor];
  int64_t block = blockIdx.x - many.begin[tensor];
  int64_t i = block * kThreads + threadIdx.x;
  if (i < own.count) own.factors[i] = 0;
}

void ClearFactors(cudaStream_t stream, std::span<const Blocks> all) {
  std::vector<Cleared> cleared;
  for (const Blocks& b : all) cleared.push_back({b.factors, FactorsOf(b)});
  ForMany(
      cleared,
      [](const Cleared& own) {
        return static_cast<unsigned>(DivideUp(own.count, kThreads));
      },
      [&](const Many<Cleared>& many) {
        Launch(ClearKernel, many.blocks, kThreads, 0, stream, many);
      });
}

void QuantizeBlocks(std::span<KernelContext> nodes) {
  std::vector<Blocks> all;
  for (KernelContext& ctx : nodes) {
    Blocks& b = all.emplace_back(BlocksOf(ctx));
    Workspace workspace = WorkspaceOf(ctx, b);
    auto* memory = static_cast<char*>(ctx.Workspace(workspace.bytes()));
    if (workspace.factors > 0) b.factors = reinterpret_cast<float*>(memory);
    if (workspace.sums > 0) {
      b.sums = reinterpret_cast<float*>(memory + workspace.factors);
    }
  }
  cudaStream_t stream = QueueOf(nodes[0]).stream();
  ClearFactors(stream, all);
  QuantizeHeld(stream, all);
  QuantizeTurned(stream, all);
  MeasureOthers(stream, all);
  // One block at least writes the amax.
  StartBlocks(stream, all, FactorsKernel, kThreads, [](const Blocks& b) {
    auto blocks = static_cast<unsigned>(DivideUp(FactorsOf(b), kThreads));
    return std::max(blocks, b.amax_out ? 1u : 0u);
  });
  EncodeColumns(stream, all);
  EncodeOthers(stream, all);
  EncodeTurned(stream, all);
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (!all[i].turned) continue;
    AddColumnSums(nodes[i], kColumnSumsOfBlocks, all[i].sums);
  }
}

void QuantizeBlock(KernelContext& ctx) { QuantizeBlocks({&ctx, 1}); }

}  // namespace

void RegisterQuantizeBlock(KernelRegistry& r) {
  const KernelTraits traits{.own_amaxes = 1,
                            .narrow_in = {0},
                            .workspace = WorkspaceBytes,
                            .many = QuantizeBlocks};
  r.Add("QuantizeBlock", QuantizeBlock, traits, kDomain);
  r.Add("QuantizeColumns", QuantizeBlock, traits, kDomain);
}

}  // namespace onnx_fp8::cuda
