// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "providers/cuda/core/result.h"
#include "providers/cuda/fp8/blocks.h"
#include "providers/cuda/fp8/column_sums.h"
#include "providers/cuda/fp8/held.h"
#include "providers/ops/block_grid.h"
#include "providers/ops/scaled_products.h"

namespace onnx_fp8::cuda {
namespace {

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

// Elements of a vector.
int64_t WidthOf(const Blocks& b) {
  return IsNarrow(b) ? kWidth<Storage::kBFloat16> : kWidth<Storage::kFloat>;
}

bool IsAligned(const Blocks& b) {
  auto address = [](const void* p) { return reinterpret_cast<uintptr_t>(p); };
  return address(b.x.data) % 16 == 0 && address(b.q) % 8 == 0;
}

// Whether a tile has whole blocks of that many elements of a row or a column.
bool IsPart(int64_t block) {
  return block == 32 || block == 64 || block == kTileColumns;
}

int Logarithm(int64_t power) {
  int shift = 0;
  while (int64_t{1} << shift < power) ++shift;
  return shift;
}

// A tensor's way, and what goes with it.
void ChooseWay(const BlockGrid& grid, Blocks& b) {
  int64_t width = WidthOf(b);
  bool aligned = IsAligned(b);
  b.way = Way::kOthers;
  // Blocks without elements have scales, too.
  if (grid.rows == 0 || grid.columns == 0) return;
  auto has = [](int64_t block, int64_t size, int64_t wanted) {
    return block == wanted || (block == size && size <= wanted);
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
  } else if (!b.turned && grid.block_rows == 1 && IsPart(grid.block_columns)) {
    b.way = Way::kRowParts;
    b.shift = Logarithm(grid.block_columns / width);
  } else if (grid.block_columns == 1 && IsPart(grid.block_rows)) {
    b.way = Way::kColumnParts;
    b.shift = Logarithm(grid.block_rows / kRowsOfWarp);
  } else if (grid.block_columns == 1 && grid.down == 1) {
    bool is_short = grid.rows <= kTileColumns;
    b.way = is_short ? Way::kColumnParts : Way::kColumns;
    b.shift = Logarithm(kSquareWarps);
  }
  if (b.turned && b.way == Way::kColumnParts) b.way = Way::kTurnedParts;
}

// Chooses the way of a tensor that QuantizeBlockTranspose reads. A block has
// `block` elements of a row or of a column; 0 means whole rows and columns.
void ChooseWayOfBoth(int64_t block, Blocks& b) {
  b.aligned = IsAligned(b) && b.columns % WidthOf(b) == 0;
  b.way = block == 0 ? Way::kBothWhole : Way::kBothParts;
  if (block == 0) return;
  b.shift = Logarithm(block / (b.turned ? kRowsOfWarp : WidthOf(b)));
}

bool IsBoth(const KernelContext& ctx) {
  return ctx.node().op == "QuantizeBlockTranspose";
}

// The blocks of x. If `turned`, attributes describe the transpose.
BlockGrid GridIn(const KernelContext& ctx, bool turned) {
  int64_t rows = ctx.Int("block_rows", 0);
  int64_t columns = ctx.Int("block_columns", 0);
  Check(rows == 1 || !(turned || IsBoth(ctx)), "[", ctx.Where(),
        "] expected block_rows of 1, got ", rows);
  Check(!IsBoth(ctx) || IsPartOfBoth(columns), "[", ctx.Where(),
        "] expected block_columns of 0, 32, 64 or 128, got ", columns);
  return turned ? GridOf(ctx, Operand(ctx, 0), "block_columns", "block_rows")
                : GridOf(ctx, Operand(ctx, 0), "block_rows", "block_columns");
}

}  // namespace

Blocks BlocksOf(KernelContext& ctx, bool turned) {
  bool second = turned && IsBoth(ctx);
  size_t codes = second ? kTransposedCodes : 0;
  size_t scales = second ? kTransposedScales : 1;
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
  Check(!turned || !SumsColumns(ctx) || ctx.HasOut(codes), "[", ctx.Where(),
        "] expected codes beside the sums of columns, got none");
  if (ctx.HasOut(codes) && turned) {
    MatrixSizes sizes =
        cuda::SizesOf(Operand(ctx, 0).size(), grid.columns, false);
    b.q_turned = TransposedTo(ctx, codes, to, sizes);
  } else if (ctx.HasOut(codes)) {
    b.q = static_cast<uint8_t*>(ctx.Out(0, to, Operand(ctx, 0).shape()).raw());
  }
  if (ctx.HasOut(scales)) {
    Shape shape = {grid.down, grid.across};
    if (turned) std::swap(shape[0], shape[1]);
    b.scales = ctx.Out(scales, ScaleDType(b.format), shape).raw();
  }
  if (ctx.HasOut(2) && !second) {
    b.amax_out = static_cast<float*>(ctx.Out(2, DType::kFloat, {}).raw());
  }
  if (IsBoth(ctx)) {
    ChooseWayOfBoth(ctx.Int("block_columns", 0), b);
  } else {
    ChooseWay(grid, b);
  }
  return b;
}

}  // namespace onnx_fp8::cuda
