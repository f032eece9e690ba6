// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "graph/schemas/fused_quantize.h"
#include "providers/cuda/core/check_quantize.h"
#include "providers/cuda/core/queue.h"
#include "providers/cuda/core/result.h"
#include "providers/cuda/core/transpose_tile.h"

namespace onnx_fp8::cuda {
namespace {

// Which of the row's quantizers result i has; their number if it has none.
size_t QuantizerOf(const FusedQuantizer& row, size_t i) {
  return static_cast<size_t>(std::ranges::find(row.quantized, i) -
                             row.quantized.begin());
}

__global__ void WriteScalarsKernel(Result r) { WriteScalars(r); }

__global__ void __launch_bounds__(kTransposeThreads)
    TransposeCodesKernel(const uint8_t* q, int64_t rows, int64_t columns,
                         uint8_t* to) {
  TransposeTile(
      blockIdx.x, blockIdx.y,
      [&](int64_t row, int64_t column) -> uint32_t {
        if (row >= rows || column >= columns) return 0;
        return *reinterpret_cast<const uint32_t*>(q + row * columns + column);
      },
      [&](int64_t column, int64_t row, uint32_t codes) {
        if (row >= rows || column >= columns) return;
        *reinterpret_cast<uint32_t*>(to + column * rows + row) = codes;
      });
}

}  // namespace

const float* GivenScaleIn(const KernelContext& ctx, size_t i) {
  const Tensor& scale = Operand(ctx, i);
  Check(scale.dtype() == DType::kFloat && scale.size() == 1, "[", ctx.Where(),
        "] expected one float as scale, got ", Name(scale.dtype()),
        ToString(scale.shape()));
  return static_cast<const float*>(scale.raw());
}

float* ScalarResult(KernelContext& ctx, size_t i) {
  if (!ctx.HasOut(i)) return nullptr;
  return static_cast<float*>(ctx.Out(i, DType::kFloat, {}).raw());
}

uint8_t* TransposedTo(KernelContext& ctx, size_t i, DType to,
                      const MatrixSizes& sizes) {
  int64_t rows = sizes.to_rows, columns = sizes.to_columns;
  Check(rows > 0 && rows % kCodes == 0 && columns % kCodes == 0, "[",
        ctx.Where(), "] expected rows and columns in multiples of ", kCodes,
        ", got ", rows, " and ", columns);
  return static_cast<uint8_t*>(ctx.Out(i, to, {columns, rows}).raw());
}

// Result i: a scale for each row of a tensor of that shape.
void* RowScalesTo(KernelContext& ctx, size_t i, const BlockFormat& format,
                  const Shape& shape) {
  Check(ctx.HasOut(i), "[", ctx.Where(), "] expected result ", i,
        ", the scales");
  int64_t rows = NumElements({shape.begin(), shape.end() - 1});
  return ctx.Out(i, ScaleDType(format), {rows, 1}).raw();
}

Result ResultTo(KernelContext& ctx, size_t i, const Shape& shape) {
  Result r;
  r.y = FloatsTo(ctx, i, shape);
  int64_t n = NumElements(shape), columns = shape.empty() ? 1 : shape.back();
  r.sizes = SizesOf(n, columns, false);
  r.amax = ClearedAmax(ctx, i);
  const FusedQuantizer* row = FindFusedQuantizer(ctx.node().op);
  size_t slot = row ? QuantizerOf(*row, i) : 0;
  if (!row || slot == row->quantized.size()) return r;
  CheckQuantize(ctx);
  auto to = static_cast<DType>(ctx.Int("to", 0));
  size_t codes = row->Codes(slot);
  Check(ctx.HasOut(codes), "[", ctx.Where(), "] expected result ", codes,
        ", the codes");
  r.amax = reinterpret_cast<DeviceAmax*>(ctx.OwnAmax(slot));
  r.rounded = StorageOf(ctx, static_cast<DType>(ctx.Int("round_to", 1)));
  r.q_max = ctx.Float("q_max", 0.0f);
  r.e4m3 = to == DType::kE4M3;
  r.sizes = SizesOf(n, columns, row->padded);
  Shape of_codes =
      row->padded ? Shape{r.sizes.to_rows, r.sizes.to_columns} : shape;
  r.q = static_cast<uint8_t*>(ctx.Out(codes, to, of_codes).raw());
  r.amax_out = ScalarResult(ctx, codes + 2);
  if (row->by_rows) {
    r.rows = BlockFormatOf(ctx);
    r.row_scales = RowScalesTo(ctx, codes + 1, r.rows, shape);
    if (!r.amax_out) r.amax = nullptr;
    return r;
  }
  r.scale_in = GivenScaleIn(ctx, row->ScaleIn(slot));
  r.scale_out = ScalarResult(ctx, codes + 1);
  if (ctx.HasOut(codes + 3)) {
    r.q_transposed = TransposedTo(ctx, codes + 3, to, r.sizes);
  }
  return r;
}

void Finish(const KernelContext& ctx, const Result& r) {
  if (!r.scale_out && !r.amax_out) return;
  Launch(WriteScalarsKernel, 1, 1, 0, QueueOf(ctx).stream(), r);
}

void TransposeCodes(const KernelContext& ctx, const Result& r) {
  if (!r.q_transposed || r.turns) return;
  int64_t rows = r.sizes.to_rows, columns = r.sizes.to_columns;
  Launch(TransposeCodesKernel, TransposeTiles(rows, columns), kTransposeThreads,
         0, QueueOf(ctx).stream(), r.q, rows, columns, r.q_transposed);
}

}  // namespace onnx_fp8::cuda
