// SPDX-License-Identifier: Apache-2.0
//
// ScaledMatMulBlock: the product of two matrices of 8-bit floats with a scale
// for each block, computed as one product of the packed Gemm. The scales of an
// operand enter it in one of four ways:
//
//   the same along K          factors of the sum's rows or columns
//   powers of two             the operand becomes bfloat16, exactly
//   blocks of K deep enough   factors of partial sums, one for each depth of K
//   others                    the operand becomes float, each value rounded
#include <numeric>

#include "base/check.h"
#include "providers/cpu/fp8/block_scales.h"
#include "providers/cpu/fp8/dequantize_block.h"
#include "providers/cpu/fp8/scaled_product.h"
#include "providers/cpu/gemm/gemm.h"
#include "providers/cpu/gemm/scratch.h"
#include "providers/kernel.h"
#include "providers/ops/divide_up.h"

namespace onnx_fp8 {
namespace {

// Depths of partial sums that Gemm takes.
constexpr int64_t kMostDepth = 256, kLeastDepth = 32;

// One operand as the product sees it: `outer` is M of a, N of b.
struct ScaledOperand {
  const Tensor* q;
  BlockGrid grid;
  std::vector<float> scales;
  bool k_is_columns;

  int64_t k() const { return k_is_columns ? grid.columns : grid.rows; }
  int64_t outer() const { return k_is_columns ? grid.rows : grid.columns; }
  // Blocks along K, and how deep they are.
  int64_t k_blocks() const { return k_is_columns ? grid.across : grid.down; }
  int64_t k_block() const {
    return k_is_columns ? grid.block_columns : grid.block_rows;
  }
  float ScaleAt(int64_t outer, int64_t k) const {
    int64_t row = k_is_columns ? outer : k, column = k_is_columns ? k : outer;
    return scales[static_cast<size_t>(row / grid.block_rows * grid.across +
                                      column / grid.block_columns)];
  }
};

ScaledOperand OperandIn(const KernelContext& ctx, size_t q,
                        const char* block_rows, const char* block_columns,
                        bool k_is_columns) {
  const Tensor& codes = ctx.In(q);
  Check(IsFloat8(codes.dtype()), "[", ctx.Where(),
        "] expected an 8-bit float, got ", Name(codes.dtype()));
  BlockGrid grid = GridOf(ctx, codes, block_rows, block_columns);
  return {&codes, grid, ScalesIn(ctx, q + 1, grid), k_is_columns};
}

// The operand without its scales; with them if there is no other way to apply
// them.
class Decoded {
 public:
  explicit Decoded(const ScaledOperand& x) : x_(x) {
    data_ = {x.q->raw(), x.q->dtype(), x.grid.columns, false};
  }

  // True if the scales vary along K and are not applied yet.
  bool open() const { return !inside_ && x_.k_blocks() > 1; }

  void ToBFloat16(Scratch& scratch) {
    auto to = reinterpret_cast<uint16_t*>(
        scratch.Get(static_cast<size_t>(x_.q->size()) * 2));
    DequantizeToBFloat16(x_.q->dtype(), x_.q->raw(), x_.grid, x_.scales, to);
    Set(to, DType::kBFloat16);
  }
  void ToFloat(Scratch& scratch) {
    auto to = reinterpret_cast<float*>(
        scratch.Get(static_cast<size_t>(x_.q->size()) * 4));
    DequantizeTo(x_.q->dtype(), x_.q->raw(), x_.grid, x_.scales, to);
    Set(to, DType::kFloat);
  }

  GemmOperand operand(bool transposed) const {
    GemmOperand operand = data_;
    operand.transposed = transposed;
    return operand;
  }

  // (groups, outer): the scales for each `depth` of K.
  std::vector<float> Factors(int64_t groups, int64_t depth) const {
    int64_t n = x_.outer();
    std::vector<float> factors(static_cast<size_t>(groups * n), 1.0f);
    bool none = inside_ || x_.scales.empty();
    for (int64_t g = 0; g < groups && !none; ++g) {
      for (int64_t i = 0; i < n; ++i) {
        factors[static_cast<size_t>(g * n + i)] = x_.ScaleAt(i, g * depth);
      }
    }
    return factors;
  }

  int64_t k_block() const { return x_.k_block(); }
  const std::vector<float>& scales() const { return x_.scales; }

 private:
  void Set(const void* data, DType dtype) {
    data_.data = data;
    data_.dtype = dtype;
    inside_ = true;
  }

  const ScaledOperand& x_;
  GemmOperand data_;
  bool inside_ = false;
};

thread_local Scratch scratch_a, scratch_b;

// y = op(a) · op(b) [+ addend].
template <Addend kAddend>
void MultiplyBlocks(KernelContext& ctx) {
  bool ta = ctx.Int("transA", 0) != 0, tb = ctx.Int("transB", 0) != 0;
  ScaledOperand a = OperandIn(ctx, 0, "a_block_rows", "a_block_columns", !ta);
  ScaledOperand b = OperandIn(ctx, 2, "b_block_rows", "b_block_columns", tb);
  GemmProblem p = {.m = a.outer(), .n = b.outer(), .k = a.k()};
  SetProduct(ctx, kAddend, b.k(), &p);

  Decoded da(a), db(b);
  for (auto [x, scratch] :
       {std::pair{&da, &scratch_a}, std::pair{&db, &scratch_b}}) {
    bool exact = x->open() && ExactInBFloat16(x->scales());
    // Hopper multiplies only 8-bit values, and scales partial sums.
    if (exact && ActiveAccumulation() == Accumulation::kFloat) {
      x->ToBFloat16(*scratch);
    }
  }
  int64_t depth = kMostDepth;
  for (Decoded* x : {&da, &db}) {
    if (x->open()) depth = std::gcd(depth, x->k_block());
  }
  if (depth < kLeastDepth) {
    if (da.open()) da.ToFloat(scratch_a);
    if (db.open()) db.ToFloat(scratch_b);
  }
  p.a = da.operand(ta);
  p.b = db.operand(tb);
  bool grouped = da.open() || db.open();
  std::vector<float> rows, columns;
  if (a.grid.blocks() == 1 && b.grid.blocks() == 1) {
    p.scale = a.scales[0] * b.scales[0];
  } else {
    int64_t groups = grouped ? DivideUp(p.k, depth) : 1;
    rows = da.Factors(groups, depth);
    columns = db.Factors(groups, depth);
    p.row_scale = rows.data();
    p.column_scale = columns.data();
    p.scale_depth = grouped ? depth : 0;
  }
  Gemm(p);
}

}  // namespace

void RegisterScaledMatMulBlock(KernelRegistry& r) {
  r.Add("ScaledMatMulBlock", MultiplyBlocks<Addend::kNone>, {.narrow_out = {0}},
        kDomain);
  r.Add("ScaledMatMulBlockAdd", MultiplyBlocks<Addend::kSum>,
        {.in_place = {{4, 0}}, .adds_depth = kAddDepth}, kDomain);
  r.Add("ScaledMatMulBlockBias", MultiplyBlocks<Addend::kBias>,
        {.narrow_out = {0}}, kDomain);
}

}  // namespace onnx_fp8
