// SPDX-License-Identifier: Apache-2.0
//
// ScaledMatMulBlock. The scales of both operands decide the way:
//
//   one for the whole, or one for each      an FP8 product (scaled_product.h)
//   row of the result (of b: column)
//   one for 128 elements of k and one or    an FP8 product, if cuBLASLt has it
//   128 rows (columns), not 128 for both
//   float8e8m0 for 32 elements of k and     an FP8 product, on Blackwell
//   one row (column)
//   others                                  a product of copies in which the
//                                           scales are multiplied: exactly as
//                                           bfloat16 if they are powers of two
//                                           (float8e8m0), else as float
#include <optional>

#include "providers/cuda/core/check.h"
#include "providers/cuda/fp8/dequantize.h"
#include "providers/cuda/fp8/scaled_product.h"
#include "providers/cuda/gemm/finish.h"
#include "providers/cuda/gemm/product.h"
#include "providers/kernel.h"
#include "providers/ops/arguments.h"
#include "providers/ops/block_grid.h"
#include "providers/ops/divide_up.h"

namespace onnx_fp8::cuda {
namespace {

struct BlockOperand {
  ScaledOperand x;
  BlockGrid grid;
  const Tensor* codes;
  const Tensor* scales;
  // Scales that cuBLASLt could read.
  std::optional<ScaleMode> simple, blocks;
};

// kOne or kOuter; nullopt if the scales are others.
std::optional<ScaleMode> SimpleMode(const BlockGrid& g, bool k_is_rows) {
  if (g.blocks() == 1) return ScaleMode::kOne;
  int64_t along_k = k_is_rows ? g.down : g.across;
  int64_t outer_block = k_is_rows ? g.block_columns : g.block_rows;
  if (along_k == 1 && outer_block == 1) return ScaleMode::kOuter;
  return std::nullopt;
}

// kVector128 or kBlock128; nullopt if the scales are others.
std::optional<ScaleMode> Mode128(const BlockGrid& g, bool k_is_rows) {
  // A block as long as the axis, up to 128, is a block of 128.
  auto is_128 = [](int64_t block, int64_t count, int64_t size) {
    return block == 128 || (count == 1 && size <= 128);
  };
  bool rows = is_128(g.block_rows, g.down, g.rows);
  bool columns = is_128(g.block_columns, g.across, g.columns);
  if (!(k_is_rows ? rows : columns)) return std::nullopt;
  if ((k_is_rows ? g.block_columns : g.block_rows) == 1) {
    return ScaleMode::kVector128;
  }
  if (k_is_rows ? columns : rows) return ScaleMode::kBlock128;
  return std::nullopt;
}

// kMx, of scales in float8e8m0; nullopt if they are others.
std::optional<ScaleMode> MxMode(const BlockGrid& g, bool k_is_rows) {
  int64_t along_k = k_is_rows ? g.block_rows : g.block_columns;
  int64_t outer = k_is_rows ? g.block_columns : g.block_rows;
  if (along_k != 32 || outer != 1) return std::nullopt;
  return ScaleMode::kMx;
}

BlockOperand OperandIn(const KernelContext& ctx, size_t i,
                       const char* block_rows, const char* block_columns,
                       bool transposed, bool is_a) {
  const Tensor &codes = Operand(ctx, i), &scales = Operand(ctx, i + 1);
  BlockOperand o = {CodesOf(ctx, i, transposed, is_a),
                    GridOf(ctx, codes, block_rows, block_columns),
                    &codes,
                    &scales,
                    {},
                    {}};
  const BlockGrid& g = o.grid;
  DType dtype = scales.dtype();
  Check((dtype == DType::kFloat || dtype == DType::kE8M0) &&
            (scales.shape() == Shape({g.down, g.across}) ||
             (scales.rank() == 0 && g.blocks() == 1)),
        "[", ctx.Where(), "] expected scales float or float8e8m0[", g.down, ",",
        g.across, "], got ", Name(dtype), ToString(scales.shape()));
  o.x.scales = scales.raw();
  if (dtype == DType::kE8M0) o.blocks = MxMode(g, o.x.codes.k_is_rows);
  if (dtype != DType::kFloat) return o;
  o.simple = SimpleMode(g, o.x.codes.k_is_rows);
  o.blocks = Mode128(g, o.x.codes.k_is_rows);
  return o;
}

// The kernel's workspace for decoded operands: cuBLASLt's, the operands, sums.
struct Decoded {
  DType dtype;  // of the copies
  size_t a, b, sums;
  size_t bytes() const { return kProductWorkspace + a + b + sums; }
};

Decoded DecodedOf(const BlockOperand& a, const BlockOperand& b) {
  bool exact =
      a.scales->dtype() == DType::kE8M0 && b.scales->dtype() == DType::kE8M0;
  DType dtype = exact ? DType::kBFloat16 : DType::kFloat;
  auto bytes = [](int64_t elements, DType of) {
    return static_cast<size_t>(
        RoundUp(elements * static_cast<int64_t>(ByteSize(of)), 256));
  };
  int64_t m = a.x.codes.outer(), n = b.x.codes.outer(), k = a.x.codes.k();
  return {dtype, bytes(m * k, dtype), bytes(n * k, dtype),
          bytes(m * n, DType::kFloat)};
}

// Both operands with their scales inside, as floats of one dtype.
void MultiplyDecoded(KernelContext& ctx, const BlockOperand& a,
                     const BlockOperand& b, Addend addend) {
  int64_t m = a.x.codes.outer(), n = b.x.codes.outer(), k = a.x.codes.k();
  Check(k == b.x.codes.k(), "[", ctx.Where(),
        "] expected operands that share an axis, got ",
        ToString(a.codes->shape()), " and ", ToString(b.codes->shape()));
  Shape shape = ProductShape(*a.codes, a.x, b.x);
  Added added = AddedIn(ctx, addend, shape);
  FloatsOut y = FloatsTo(ctx, 0, shape);
  if (m == 0 || n == 0) return;
  Decoded parts = DecodedOf(a, b);
  DType dtype = parts.dtype;
  Queue& queue = QueueOf(ctx);
  auto* workspace = static_cast<char*>(ctx.Workspace(parts.bytes()));
  char *at_a = workspace + kProductWorkspace, *at_b = at_a + parts.a;
  auto* sums = reinterpret_cast<float*>(at_b + parts.b);
  Dequantize(queue, a.grid, a.codes->raw(), a.codes->dtype(), a.scales->raw(),
             a.scales->dtype(), at_a, dtype);
  Dequantize(queue, b.grid, b.codes->raw(), b.codes->dtype(), b.scales->raw(),
             b.scales->dtype(), at_b, dtype);
  if (k > 0) {
    queue.Own<Products>().Multiply(
        {.m = m,
         .n = n,
         .k = k,
         .a = {.data = at_a, .dtype = dtype, .transposed = a.x.codes.k_is_rows},
         .b = {.data = at_b,
               .dtype = dtype,
               .transposed = !b.x.codes.k_is_rows},
         .y = sums},
        workspace, queue);
  } else {
    ONNX_FP8_CUDA(cudaMemsetAsync(sums, 0, static_cast<size_t>(m * n) * 4,
                                  queue.stream()));
  }
  FinishProduct(queue, {.m = m,
                        .n = n,
                        .sum = sums,
                        .ld = n,
                        .c = added.c,
                        .c_row = added.RowOf(n),
                        .c_column = 1,
                        .y = y});
}

// The operands of a node, and the way of its product.
struct BlockProduct {
  BlockOperand a, b;
  Shape shape;     // of the result
  bool has_codes;  // an FP8 product; else operands are decoded
};

BlockProduct BlockProductIn(KernelContext& ctx, Addend addend) {
  BlockProduct p = {OperandIn(ctx, 0, "a_block_rows", "a_block_columns",
                              ctx.Int("transA", 0) != 0, true),
                    OperandIn(ctx, 2, "b_block_rows", "b_block_columns",
                              ctx.Int("transB", 0) != 0, false),
                    {},
                    false};
  BlockOperand &a = p.a, &b = p.b;
  p.shape = ProductShape(*a.codes, a.x, b.x);
  p.has_codes = a.simple && b.simple;
  if (p.has_codes) {
    a.x.mode = *a.simple;
    b.x.mode = *b.simple;
    return p;
  }
  bool together =
      a.blocks && b.blocks &&
      (*a.blocks == ScaleMode::kMx) == (*b.blocks == ScaleMode::kMx);
  if (!together || a.grid.blocks() == 0 || b.grid.blocks() == 0) return p;
  a.x.mode = *a.blocks;
  b.x.mode = *b.blocks;
  p.has_codes = HasProduct(ctx, a.x, b.x, addend, p.shape);
  return p;
}

template <Addend kAddend>
void MultiplyBlocks(KernelContext& ctx) {
  BlockProduct p = BlockProductIn(ctx, kAddend);
  if (p.has_codes) {
    MultiplyScaled(ctx, p.a.x, p.b.x, kAddend, p.shape);
  } else {
    MultiplyDecoded(ctx, p.a, p.b, kAddend);
  }
}

template <Addend kAddend>
size_t BlockWorkspace(KernelContext& ctx) {
  BlockProduct p = BlockProductIn(ctx, kAddend);
  return p.has_codes ? ScaledWorkspace(ctx, p.a.x, p.b.x, kAddend, p.shape)
                     : DecodedOf(p.a, p.b).bytes();
}

template <Addend kAddend>
void RegisterBlocks(KernelRegistry& r, const char* op, KernelTraits traits) {
  traits.one_e5m2 = traits.byte_scales = true;
  traits.workspace = BlockWorkspace<kAddend>;
  r.Add(op, MultiplyBlocks<kAddend>, traits, kDomain);
}

}  // namespace

void RegisterScaledMatMulBlock(KernelRegistry& r) {
  RegisterBlocks<Addend::kNone>(r, "ScaledMatMulBlock", {.narrow_out = {0}});
  RegisterBlocks<Addend::kBias>(r, "ScaledMatMulBlockBias",
                                {.narrow_in = {4}, .narrow_out = {0}});
  RegisterBlocks<Addend::kMatrix>(r, "ScaledMatMulBlockAdd",
                                  {.in_place = {{4, 0}}});
}

}  // namespace onnx_fp8::cuda
