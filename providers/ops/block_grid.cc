// SPDX-License-Identifier: Apache-2.0
#include "providers/ops/block_grid.h"

#include <algorithm>

#include "base/check.h"
#include "providers/ops/divide_up.h"

namespace onnx_fp8 {
namespace {

struct Cut {
  int64_t block, count;
};

// A block longer than the axis counts as one of the axis' length.
Cut CutAxis(const KernelContext& ctx, int64_t size, const char* attribute) {
  int64_t given = ctx.Int(attribute, -1);
  Check(given >= 0, "[", ctx.Where(), "] expected ", attribute,
        " of 0 (the whole axis) or more, got ", given);
  int64_t longest = std::max<int64_t>(size, 1);
  if (given == 0) return {longest, 1};
  int64_t block = std::min(given, longest);
  return {block, DivideUp(size, block)};
}

}  // namespace

BlockGrid GridOf(const KernelContext& ctx, const Tensor& t,
                 const char* block_rows, const char* block_columns) {
  Check(t.rank() >= 2, "[", ctx.Where(), "] expected a rank of 2 or more, got ",
        ToString(t.shape()));
  Shape lead(t.shape().begin(), t.shape().end() - 1);
  int64_t rows = NumElements(lead), columns = t.dim(-1);
  Cut down = CutAxis(ctx, rows, block_rows);
  Cut across = CutAxis(ctx, columns, block_columns);
  return {rows, columns, down.block, across.block, down.count, across.count};
}

}  // namespace onnx_fp8
