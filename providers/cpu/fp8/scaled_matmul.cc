// SPDX-License-Identifier: Apache-2.0
//
// Products of 8-bit floats with scales, as products of the packed Gemm.
#include <numeric>

#include "base/check.h"
#include "providers/cpu/fp8/dequantize_block.h"
#include "providers/cpu/gemm/gemm.h"
#include "providers/cpu/gemm/scratch.h"
#include "providers/cpu/stored.h"
#include "providers/kernel.h"
#include "providers/ops/divide_up.h"

namespace onnx_fp8 {
namespace {

// What input 4 is: a row that is added to each row of the product, or a tensor
// like the product that is added to it.
enum class Addend { kNone, kBias, kSum };

constexpr size_t kAdded = 4;  // input

// Sets the parts that ScaledMatMul and ScaledMatMulBlock share: addend, sums
// and the result. The result keeps the leading axes of input 0, but is a matrix
// if that input is transposed. `b_k`: the size of the second operand's axis of
// the sum. REQUIRES: m, n and k are set. Errors: operands whose axes of the sum
// differ, another addend.
void SetProduct(KernelContext& ctx, Addend addend, int64_t b_k,
                GemmProblem* p) {
  const Tensor &a = ctx.In(0), &b = ctx.In(2);
  bool ta = ctx.Int("transA", 0) != 0, tb = ctx.Int("transB", 0) != 0;
  Check(b_k == p->k, "[", ctx.Where(),
        "] expected operands that share an axis, got ", ToString(a.shape()),
        ta ? " transposed" : "", " and ", ToString(b.shape()),
        tb ? " transposed" : "");
  Shape y_shape = {p->m, p->n};
  if (!ta) {
    y_shape = a.shape();
    y_shape.back() = p->n;
  }
  if (addend != Addend::kNone) {
    bool is_bias = addend == Addend::kBias;
    const Tensor& added = ctx.In(kAdded);
    const Shape& expected = is_bias ? Shape{p->n} : y_shape;
    Check(added.dtype() == DType::kFloat && added.shape() == expected, "[",
          ctx.Where(), "] expected ", is_bias ? "bias" : "addend", " float",
          ToString(expected), ", got ", Name(added.dtype()),
          ToString(added.shape()));
    if (is_bias) p->bias = added.raw();
  }
  Tensor y = StoredResult(ctx, 0, DType::kFloat, y_shape);
  if (addend == Addend::kSum) {
    CopyBytes(ctx.In(kAdded), y);  // unless they share memory
    p->add = true;
  }
  p->c = y.raw();
  p->c_dtype = y.dtype();
  p->fast_accum = ctx.Int("fast_accum", 0) != 0;
}

// ---- one scale for a tensor

// An operand of any rank >= 2 as a matrix: all axes but the last are joined.
struct Flat {
  int64_t rows, columns;
};

Flat Flatten(const Tensor& t, const std::string& where) {
  Check(IsFloat8(t.dtype()) && t.rank() >= 2, "[", where,
        "] expected an 8-bit float of rank 2 or more, got ", Name(t.dtype()),
        ToString(t.shape()));
  Shape lead(t.shape().begin(), t.shape().end() - 1);
  return {NumElements(lead), t.dim(-1)};
}

float ScaleOf(const Tensor& t, const std::string& where) {
  Check(t.dtype() == DType::kFloat && t.size() == 1, "[", where,
        "] expected one float as scale, got ", Name(t.dtype()),
        ToString(t.shape()));
  return *t.data<float>();
}

// y = (op(a_q) · op(b_q)) · (a_scale · b_scale) [+ addend].
template <Addend kAddend>
void MultiplyScaled(KernelContext& ctx) {
  std::string where = ctx.Where();
  const Tensor &a = ctx.In(0), &b = ctx.In(2);
  Flat fa = Flatten(a, where), fb = Flatten(b, where);
  bool ta = ctx.Int("transA", 0) != 0, tb = ctx.Int("transB", 0) != 0;
  GemmProblem p = {
      .m = ta ? fa.columns : fa.rows,
      .n = tb ? fb.rows : fb.columns,
      .k = ta ? fa.rows : fa.columns,
      .a = {a.raw(), a.dtype(), fa.columns, ta},
      .b = {b.raw(), b.dtype(), fb.columns, tb},
      .scale = ScaleOf(ctx.In(1), where) * ScaleOf(ctx.In(3), where)};
  SetProduct(ctx, kAddend, tb ? fb.columns : fb.rows, &p);
  Gemm(p);
}

// ---- scales of blocks
//
// ScaledMatMulBlock: the product of two matrices of 8-bit floats with a scale
// for each block, computed as one product of the packed Gemm. The scales of an
// operand enter it in one of four ways:
//
//   the same along K          factors of the sum's rows or columns
//   powers of two             the operand becomes bfloat16, exactly
//   blocks of K deep enough   factors of partial sums, one for each depth of K
//   others                    the operand becomes float, each value rounded

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

void RegisterScaledMatMul(KernelRegistry& r) {
  r.Add("ScaledMatMul", MultiplyScaled<Addend::kNone>, {.narrow_out = {0}},
        kDomain);
  r.Add("ScaledMatMulAdd", MultiplyScaled<Addend::kSum>,
        {.in_place = {{4, 0}}, .adds_depth = kAddDepth}, kDomain);
  r.Add("ScaledMatMulBias", MultiplyScaled<Addend::kBias>, {.narrow_out = {0}},
        kDomain);
  r.Add("ScaledMatMulBlock", MultiplyBlocks<Addend::kNone>, {.narrow_out = {0}},
        kDomain);
  r.Add("ScaledMatMulBlockAdd", MultiplyBlocks<Addend::kSum>,
        {.in_place = {{4, 0}}, .adds_depth = kAddDepth}, kDomain);
  r.Add("ScaledMatMulBlockBias", MultiplyBlocks<Addend::kBias>,
        {.narrow_out = {0}}, kDomain);
}

}  // namespace onnx_fp8
