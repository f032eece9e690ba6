// SPDX-License-Identifier: Apache-2.0
#include "providers/cuda/fp8/scaled_product.h"

#include "graph/schemas/quantize_padded.h"
#include "providers/cuda/core/check.h"
#include "providers/cuda/gemm/block_scales.h"
#include "providers/cuda/gemm/finish.h"
#include "providers/ops/arguments.h"
#include "providers/ops/divide_up.h"

namespace onnx_fp8::cuda {
namespace {

constexpr int64_t kBlockSize = 128;  // of scales, along k and the outer axis
constexpr int64_t kMxBlock = 32;     // the same of kMx, along k
constexpr size_t kAlignment = 256;   // of parts of the scratch memory

size_t Aligned(int64_t bytes) {
  return static_cast<size_t>(RoundUp(bytes, kAlignment));
}

int64_t PaddedK(const ScaledOperand& x) {
  return RoundUp(x.codes.k(), x.mode == ScaleMode::kMx ? kMxBlock : kFp8Unit);
}

// An operand that cuBLASLt can read as it is.
bool Fits(const ScaledOperand& x) {
  return !x.codes.k_is_rows && x.codes.k() == PaddedK(x) &&
         x.codes.outer() % kFp8Unit == 0;
}

bool HasBlocks(const ScaledOperand& x) {
  return x.mode == ScaleMode::kVector128 || x.mode == ScaleMode::kBlock128 ||
         x.mode == ScaleMode::kMx;
}

// One operand as cuBLASLt reads it: what fits is used as it is, the rest is
// copied into scratch memory.
struct Side {
  int64_t outer, k;  // padded
  const uint8_t* codes;
  const void* scales;
  uint8_t* to_codes = nullptr;  // null: no copy
  void* to_scales = nullptr;
};

// Blocks of scales along an axis of that size.
int64_t BlocksAlongK(const ScaledOperand& x, int64_t k) {
  return DivideUp(k, x.mode == ScaleMode::kMx ? kMxBlock : kBlockSize);
}
int64_t BlocksAlongOuter(const ScaledOperand& x, int64_t outer) {
  return x.mode == ScaleMode::kBlock128 ? DivideUp(outer, kBlockSize) : outer;
}

// Where both operands and the sums lie.
struct ProductLayout {
  Side a, b;
  float* sums;   // null: the product goes straight into the result
  size_t bytes;  // of the workspace
};

// In a workspace at that address, which need not be memory: cuBLASLt's comes
// first.
ProductLayout LayOut(uintptr_t workspace, const ScaledOperand& a,
                     const ScaledOperand& b, bool to_sums) {
  ProductLayout p = {
      .a = {}, .b = {}, .sums = nullptr, .bytes = kProductWorkspace};
  auto take = [&](int64_t more) {
    auto* at = reinterpret_cast<uint8_t*>(workspace + p.bytes);
    p.bytes += Aligned(more);
    return at;
  };
  auto place = [&](const ScaledOperand& x) {
    Side side = {.outer = PaddedSize(x.codes.outer()),
                 .k = PaddedK(x),
                 .codes = x.codes.data,
                 .scales = x.scales};
    if (!Fits(x)) side.codes = side.to_codes = take(side.outer * side.k);
    if (HasBlocks(x)) {
      side.scales = side.to_scales = take(PackedBytes(
          x.mode, BlocksAlongOuter(x, side.outer), BlocksAlongK(x, side.k)));
    }
    return side;
  };
  p.a = place(a);
  p.b = place(b);
  if (to_sums) {
    p.sums = reinterpret_cast<float*>(take(4 * p.a.outer * p.b.outer));
  }
  return p;
}

// Makes the copies.
void Pack(Queue& queue, const ScaledOperand& x, const Side& side) {
  if (side.to_codes) {
    PackKMajor(queue, x.codes, side.outer, side.k, side.to_codes);
  }
  if (side.to_scales) {
    PackScales(queue,
               {.data = x.scales,
                .outer = BlocksAlongOuter(x, x.codes.outer()),
                .k = BlocksAlongK(x, x.codes.k()),
                .k_is_rows = x.codes.k_is_rows},
               x.mode, BlocksAlongOuter(x, side.outer), side.to_scales);
  }
}

struct Size {
  int64_t m, n;  // of the result
};

Size SizeOf(const Shape& shape) {
  Shape lead(shape.begin(), shape.end() - 1);
  return {NumElements(lead), shape.back()};
}

// What the library's product computes beside the sums, its epilogue; the rest
// is left to FinishProduct.
struct Epilogue {
  bool outer_inside =
      false;  // scales of outer elements are part of the product
  bool addend_inside = false;
  bool finishes = false;  // FinishProduct makes the result of the sums
};

Product ProductOf(const KernelContext& ctx, const ScaledOperand& a,
                  const ScaledOperand& b, const ProductLayout& p,
                  const Epilogue& epilogue, const Added& added,
                  const FloatsOut& y) {
  auto matrix = [&](const ScaledOperand& x, const Side& side) {
    bool later = x.mode == ScaleMode::kOuter && !epilogue.outer_inside;
    return Matrix{.data = side.codes,
                  .dtype = x.dtype,
                  .mode = later ? ScaleMode::kOne : x.mode,
                  .scales = later ? nullptr : side.scales};
  };
  Product product = {
      .m = p.a.outer,
      .n = p.b.outer,
      .k = p.a.k,
      .a = matrix(a, p.a),
      .b = matrix(b, p.b),
      .y = p.sums ? p.sums : y.data,
      .y_dtype = p.sums ? DType::kFloat : StorageDType(y.storage)};
  product.b.transposed = true;
  if (epilogue.addend_inside && added.kind == Addend::kBias) {
    product.bias = added.c.data;
    product.bias_dtype = StorageDType(added.c.storage);
  } else if (epilogue.addend_inside) {
    product.c = added.c.data;
    product.beta = 1;
  }
  // The sums of a block are finished in float in any case.
  bool blocks = HasBlocks(a) || HasBlocks(b);
  product.fast_accum = !blocks && ctx.Int("fast_accum", 0) != 0;
  return product;
}

// An operand's scales as factors of the sums.
const float* FactorsOf(const ScaledOperand& x, const Epilogue& epilogue) {
  bool later = x.mode == ScaleMode::kOuter && !epilogue.outer_inside;
  return later ? static_cast<const float*>(x.scales) : nullptr;
}

// Without a queue, a forecast for Hopper and cuBLASLt 12.9 or later.
bool LibraryHas(KernelContext& ctx, const ScaledOperand& a,
                const ScaledOperand& b, const Epilogue& epilogue,
                const Added& added, const FloatsOut& y) {
  if (!ctx.queue()) {
    bool tiles = a.mode == ScaleMode::kBlock128 && b.mode == a.mode;
    return a.mode != ScaleMode::kMx && !tiles;
  }
  return QueueOf(ctx).Own<Products>().Has(ProductOf(
      ctx, a, b, LayOut(0, a, b, epilogue.finishes), epilogue, added, y));
}

// Whether a product of the dtype may add the operand by itself.
bool TakesAddend(DType operands, const Added& added, const FloatsOut& y) {
  switch (added.kind) {
    case Addend::kBias:
      return TakesBias(operands, StorageDType(y.storage),
                       StorageDType(added.c.storage));
    case Addend::kMatrix:
      return y.storage == Storage::kFloat && added.c.storage == Storage::kFloat;
    default:
      return true;
  }
}

// Everything inside the product if cuBLASLt has that; else what is added and
// factors of outer elements are left to one pass over the sums.
Epilogue EpilogueOf(KernelContext& ctx, const ScaledOperand& a,
                    const ScaledOperand& b, const Added& added,
                    const FloatsOut& y, const Size& size) {
  bool pads = PaddedSize(a.codes.outer()) != size.m ||
              PaddedSize(b.codes.outer()) != size.n;
  bool outer = a.mode == ScaleMode::kOuter || b.mode == ScaleMode::kOuter;
  Epilogue inside = {.outer_inside = outer,
                     .addend_inside = added.kind != Addend::kNone};
  bool fits = !pads && a.codes.k() > 0 && (!outer || a.mode == b.mode) &&
              TakesAddend(a.dtype, added, y);
  bool asks = outer || inside.addend_inside;
  if (fits && asks && LibraryHas(ctx, a, b, inside, added, y)) return inside;
  return {.finishes = pads || asks};
}

}  // namespace

ScaledOperand CodesOf(const KernelContext& ctx, size_t i, bool transposed,
                      bool is_a) {
  const Tensor& t = Operand(ctx, i);
  Check(IsFloat8(t.dtype()) && t.rank() >= 2, "[", ctx.Where(),
        "] expected an 8-bit float of rank 2 or more, got ", Name(t.dtype()),
        ToString(t.shape()));
  Shape lead(t.shape().begin(), t.shape().end() - 1);
  ScaledOperand x;
  x.codes = {static_cast<const uint8_t*>(t.raw()), NumElements(lead), t.dim(-1),
             transposed == is_a};
  x.dtype = t.dtype();
  return x;
}

Shape ProductShape(const Tensor& a, const ScaledOperand& of_a,
                   const ScaledOperand& of_b) {
  int64_t n = of_b.codes.outer();
  if (of_a.codes.k_is_rows) return {of_a.codes.outer(), n};
  Shape shape = a.shape();
  shape.back() = n;
  return shape;
}

Added AddedIn(const KernelContext& ctx, Addend kind, const Shape& shape) {
  if (kind == Addend::kNone) return {};
  Added added = {kind, FloatsOf(ctx, 4)};
  Shape expected = kind == Addend::kBias ? Shape{shape.back()} : shape;
  Check(ctx.In(4).shape() == expected, "[", ctx.Where(), "] expected ",
        kind == Addend::kBias ? "bias" : "a matrix to add", " of shape ",
        ToString(expected), ", got ", ToString(ctx.In(4).shape()));
  return added;
}

void MultiplyScaled(KernelContext& ctx, const ScaledOperand& a,
                    const ScaledOperand& b, Addend addend, const Shape& shape) {
  auto [m, n] = SizeOf(shape);
  Check(a.codes.k() == b.codes.k(), "[", ctx.Where(),
        "] expected operands that share an axis, got ",
        ToString(ctx.In(0).shape()), " and ", ToString(ctx.In(2).shape()));
  Check(a.dtype != DType::kE5M2 || b.dtype != DType::kE5M2, "[", ctx.Where(),
        "] expected one operand at most in float8e5m2, got two: cuBLASLt has "
        "no such product; give weights and activations e4m3 in the recipe");
  Added added = AddedIn(ctx, addend, shape);
  FloatsOut y = FloatsTo(ctx, 0, shape);
  if (m == 0 || n == 0) return;
  Queue& queue = QueueOf(ctx);
  Epilogue epilogue = EpilogueOf(ctx, a, b, added, y, {m, n});
  size_t bytes = LayOut(0, a, b, epilogue.finishes).bytes;
  void* workspace = ctx.Workspace(bytes);
  ProductLayout p =
      LayOut(reinterpret_cast<uintptr_t>(workspace), a, b, epilogue.finishes);
  Product product = ProductOf(ctx, a, b, p, epilogue, added, y);
  if (product.k > 0) {
    Pack(queue, a, p.a);
    Pack(queue, b, p.b);
    queue.Own<Products>().Multiply(product, workspace, queue);
  } else {  // an empty sum is 0
    auto elements = static_cast<size_t>(product.m * product.n);
    ONNX_FP8_CUDA(cudaMemsetAsync(
        product.y, 0, elements * ByteSize(product.y_dtype), queue.stream()));
  }
  if (!epilogue.finishes) return;
  FinishProduct(queue, {.m = m,
                        .n = n,
                        .sum = p.sums,
                        .ld = product.n,
                        .row_scale = FactorsOf(a, epilogue),
                        .column_scale = FactorsOf(b, epilogue),
                        .c = added.c,
                        .c_row = added.RowOf(n),
                        .c_column = 1,
                        .y = y});
}

size_t ScaledWorkspace(KernelContext& ctx, const ScaledOperand& a,
                       const ScaledOperand& b, Addend addend,
                       const Shape& shape) {
  FloatsOut y = FloatsTo(ctx, 0, shape);
  Added added = AddedIn(ctx, addend, shape);
  Size size = SizeOf(shape);
  if (size.m == 0 || size.n == 0) return 0;
  Epilogue epilogue = EpilogueOf(ctx, a, b, added, y, size);
  return LayOut(0, a, b, epilogue.finishes).bytes;
}

bool HasProduct(KernelContext& ctx, const ScaledOperand& a,
                const ScaledOperand& b, Addend addend, const Shape& shape) {
  FloatsOut y = FloatsTo(ctx, 0, shape);
  Added added = AddedIn(ctx, addend, shape);
  Epilogue epilogue = EpilogueOf(ctx, a, b, added, y, SizeOf(shape));
  return LibraryHas(ctx, a, b, epilogue, added, y);
}

}  // namespace onnx_fp8::cuda
