// SPDX-License-Identifier: Apache-2.0
#include "providers/cpu/gemm/gemm.h"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <limits>
#include <memory>
#include <vector>

#include "base/check.h"
#include "base/parallel.h"
#include "providers/cpu/gemm/hopper.h"
#include "providers/cpu/gemm/kernels.h"
#include "providers/cpu/gemm/scratch.h"
#include "providers/cpu/gemm/write_result.h"
#include "providers/ops/divide_up.h"

namespace onnx_fp8 {
namespace {

// A product of doubles, on the calling thread's share of the pool. Models in
// double and finite differences need it to be correct, not fast. Row i of c is
// the sum over k of a(i,k) times row k of b: the inner loop runs along memory
// if b is not transposed.
void DoubleGemm(const GemmProblem& p) {
  auto a = static_cast<const double*>(p.a.data);
  auto b = static_cast<const double*>(p.b.data);
  auto c = static_cast<double*>(p.c);
  auto bias = static_cast<const double*>(p.bias);
  int64_t a_i = p.a.transposed ? 1 : p.a.ld, a_k = p.a.transposed ? p.a.ld : 1;
  int64_t b_k = p.b.transposed ? 1 : p.b.ld, b_j = p.b.transposed ? p.b.ld : 1;
  int64_t work = std::max<int64_t>(1, p.n * p.k);
  ParallelFor(p.m, std::max<int64_t>(1, 65536 / work),
              [&](int64_t begin, int64_t end) {
                std::vector<double> row(static_cast<size_t>(p.n));
                for (int64_t i = begin; i < end; ++i) {
                  std::fill(row.begin(), row.end(), 0.0);
                  for (int64_t k = 0; k < p.k; ++k) {
                    double x = a[i * a_i + k * a_k];
                    const double* from = b + k * b_k;
                    if (b_j == 1) {
                      for (int64_t j = 0; j < p.n; ++j)
                        row[size_t(j)] += x * from[j];
                    } else {
                      for (int64_t j = 0; j < p.n; ++j)
                        row[size_t(j)] += x * from[j * b_j];
                    }
                  }
                  double* to = c + i * p.ldc;
                  for (int64_t j = 0; j < p.n; ++j) {
                    double y = row[size_t(j)];
                    if (p.accumulate) y += to[j];
                    y = y * p.scale + (bias ? bias[j] : 0.0);
                    to[j] = p.add ? to[j] + y : y;
                  }
                }
              });
}

thread_local Scratch scratch_shared, scratch_own, scratch_c;

// Bytes of an element of c.
int64_t ResultBytes(const GemmProblem& p) {
  DType dtype = p.a.dtype == DType::kDouble ? DType::kDouble : p.c_dtype;
  return static_cast<int64_t>(ByteSize(dtype));
}

// The block of op(a) or op(b) that begins at element (w, k), where w counts
// rows of op(a) or columns of op(b). `across`: k runs across rows of memory.
PanelSource From(const GemmOperand& x, bool across, int64_t w, int64_t k) {
  int64_t element = across ? k * x.ld + w : w * x.ld + k;
  return {static_cast<const char*>(x.data) +
              element * static_cast<int64_t>(ByteSize(x.dtype)),
          x.dtype, x.ld, across};
}

// The part of the shared operand that is packed at a time: rows of A or columns
// of B from `begin` on, rows k … k + depth of the sum.
struct Slab {
  int64_t begin, size;
  int64_t k, depth;
};

// A slab of the narrower operand is packed for all threads. Then each thread
// packs blocks of the other operand and multiplies them with the slab, so most
// packed data never leave that core's cache. Threads wait for each other only
// at the end of these two parts: if another program has a core, each wait may
// cost more than a small product. Rows of A that lie in memory as kernels read
// them are not packed.
class PackedProduct {
 public:
  PackedProduct(const GemmProblem& p, const GemmKernels& kernels)
      : p_(p), kernels_(kernels), shares_a_(p.m < p.n) {
    unit_ = std::max(DepthUnit(kernels.a_layout), DepthUnit(kernels.b_layout));
    layer_ = p.scale_depth > 0 ? p.scale_depth : kernels.max_depth;
    Side a = {p.a, p.a.transposed, kernels.a_layout, p.m, kernels.rows};
    Side b = {p.b, !p.b.transposed, kernels.b_layout, p.n, kernels.columns};
    shared_ = shares_a_ ? a : b;
    own_ = shares_a_ ? b : a;
    element_ = static_cast<int64_t>(PanelElementBytes(shared_.layout));
    a_in_place_ = ReadsInPlace(a);
    finishes_apart_ = IsHalf(p.c_dtype) || (p.add && p.k > layer_);
  }

  void Run() {
    // The third-level cache has room for it.
    constexpr int64_t kSlabBytes = int64_t{16} << 20;
    constexpr int64_t kSlabDepth = 8192, kSlabSize = 4096;
    int64_t depth = finishes_apart_ ? p_.k : std::min(p_.k, kSlabDepth);
    int64_t size =
        std::clamp(kSlabBytes / (depth * element_), shared_.width, kSlabSize);
    size = size / shared_.width * shared_.width;
    for (int64_t at = 0; at < shared_.size; at += size) {
      for (int64_t k = 0; k < p_.k; k += depth) {
        Slab slab = {at, std::min(size, shared_.size - at), k,
                     std::min(depth, p_.k - k)};
        PackShared(slab);
        MultiplySlab(slab);
      }
    }
  }

 private:
  // An operand as panels of `width` rows (A) or columns (B); it has `size` of
  // them.
  struct Side {
    GemmOperand operand;
    bool across;  // as From's
    PanelLayout layout;
    int64_t size, width;

    int64_t Panels(int64_t n) const { return DivideUp(n, width); }
  };

  // Whether kernels read rows of A where they are. If they read each row more
  // often than that, a packed copy is faster; and rows that are kAlias bytes
  // apart share lines of the first-level cache.
  bool ReadsInPlace(const Side& a) const {
    constexpr int64_t kColumns = 512, kAlias = 2048;
    DType dtype = a.layout == PanelLayout::kFloat   ? DType::kFloat
                  : a.layout == PanelLayout::kPairs ? DType::kBFloat16
                                                    : DType::kUndefined;
    return !a.across && a.operand.dtype == dtype && p_.n <= kColumns &&
           p_.k % unit_ == 0 && a.operand.ld * element_ % kAlias != 0;
  }

  // Depth of the layer of a slab that begins at the slab's row k. Layers follow
  // each other in memory, each with all panels of the slab.
  int64_t LayerDepth(const Slab& s, int64_t k) const {
    return std::min(layer_, s.depth - k);
  }

  int64_t PanelBytesOf(int64_t width, int64_t depth) const {
    return width * RoundUp(depth, unit_) * element_;
  }

  // The place of panel `panel` in the layer at the slab's row k.
  char* PanelAt(const Slab& s, int64_t k, int64_t panel) const {
    return packed_ + k * shared_.width * element_ * shared_.Panels(s.size) +
           panel * PanelBytesOf(shared_.width, LayerDepth(s, k));
  }

  void PackShared(const Slab& s) {
    if (shares_a_ && a_in_place_) return;
    int64_t width = shared_.width, panels = shared_.Panels(s.size);
    packed_ =
        scratch_shared.Get(PanelBytes(shared_.layout, width, s.size, s.depth));
    int64_t layers = DivideUp(s.depth, layer_);
    // About 32k elements: some ten microseconds.
    int64_t grain =
        std::max<int64_t>(1, 32768 / (width * std::min(s.depth, layer_)));
    ParallelFor(layers * panels, grain, [&](int64_t first, int64_t last) {
      while (first < last) {  // the part in one layer
        int64_t k = first / panels * layer_;
        int64_t panel = first % panels;
        int64_t count = std::min(panels - panel, last - first);
        int64_t begin = panel * width;
        int64_t end = std::min(begin + count * width, s.size);
        PackPanels(
            shared_.layout, width,
            From(shared_.operand, shared_.across, s.begin + begin, s.k + k),
            end - begin, LayerDepth(s, k), PanelAt(s, k, panel));
        first += count;
      }
    });
  }

  // The operand of each thread is cut so that every thread gets several blocks
  // of equal size, up to one panel. If that gives too few blocks, the shared
  // operand is cut too.
  void MultiplySlab(const Slab& s) {
    int64_t threads = NumThreads(), wanted = threads > 1 ? 4 * threads : 1;
    double work = static_cast<double>(own_.size) * static_cast<double>(s.size) *
                  static_cast<double>(s.depth);
    if (work < 2e5) wanted = 1;  // a few microseconds on one thread
    // Columns of B that fit into the second-level cache beside A's block.
    constexpr int64_t kColumns = 512;
    int64_t largest = shares_a_ ? kColumns : kernels_.max_m;
    int64_t own = own_.Panels(own_.size), shared = shared_.Panels(s.size);
    int64_t blocks =
        std::max(wanted, RoundUp(DivideUp(own, largest / own_.width), threads));
    blocks = std::min(blocks, own);
    int64_t parts = std::min(DivideUp(wanted, blocks), shared);
    ParallelTasks(blocks * parts, [&](int64_t task) {
      int64_t block = task / parts, part = task % parts;
      int64_t begin = block * own / blocks * own_.width;
      int64_t end = (block + 1) * own / blocks * own_.width;
      int64_t panel = part * shared / parts;
      int64_t panel_end = (part + 1) * shared / parts;
      if (finishes_apart_) {
        MultiplyApart(s, begin, std::min(end, own_.size) - begin, panel,
                      panel_end);
        return;
      }
      for (int64_t k = 0; k < s.depth; k += layer_) {
        MultiplyBlock(s, k, begin, std::min(end, own_.size) - begin, panel,
                      std::min(panel_end * shared_.width, s.size) -
                          panel * shared_.width);
      }
    });
  }

  // Packs rows or columns begin … begin + size of the thread's operand, in the
  // layer at the slab's row k.
  void PackOwn(const Slab& s, int64_t k, int64_t begin, int64_t size,
               char* to) const {
    if (!shares_a_ && a_in_place_) return;
    PackPanels(own_.layout, own_.width,
               From(own_.operand, own_.across, begin, s.k + k), size,
               LayerDepth(s, k), to);
  }

  // Multiplies rows or columns begin … begin + size of the thread's operand by
  // n of the slab's, from `panel` on, in the layer at the slab's row k.
  void MultiplyBlock(const Slab& s, int64_t k, int64_t begin, int64_t size,
                     int64_t panel, int64_t n) {
    int64_t depth = LayerDepth(s, k);
    char* packed =
        scratch_own.Get(PanelBytes(own_.layout, own_.width, size, depth));
    PackOwn(s, k, begin, size, packed);
    int64_t at = s.begin + panel * shared_.width;
    auto* c = static_cast<float*>(p_.c);
    if (!shares_a_) {
      Multiply(s, k, begin, size, packed, at, n, PanelAt(s, k, panel),
               c + begin * p_.ldc + at, p_.ldc);
      return;
    }
    for (int64_t i = 0; i < n; i += kernels_.max_m) {
      Multiply(s, k, at + i, std::min(kernels_.max_m, n - i),
               PanelAt(s, k, panel + i / kernels_.rows), begin, size, packed,
               c + (at + i) * p_.ldc + begin, p_.ldc);
    }
  }

  // The same for the whole depth, with panels `panel` … `panel_end` of the
  // slab. Blocks of c are finished as floats in a buffer that stays in the
  // cache, and then rounded or added.
  void MultiplyApart(const Slab& s, int64_t begin, int64_t size, int64_t panel,
                     int64_t panel_end) {
    // The thread's operand is packed once, if the second-level cache has room
    // for its whole depth; else layer by layer, again for each block of c.
    constexpr int64_t kKept = 256 << 10;
    int64_t row = own_.Panels(size) * own_.width * element_;  // of a unit of k
    bool keeps = s.depth <= layer_ || s.depth * row <= kKept;
    char* packed = scratch_own.Get(
        static_cast<size_t>(keeps ? RoundUp(s.depth, unit_) * row : 0) +
        PanelBytes(own_.layout, own_.width, size, std::min(layer_, s.depth)));
    for (int64_t k = 0; keeps && k < s.depth; k += layer_) {
      PackOwn(s, k, begin, size, packed + k * row);
    }
    constexpr int64_t kBlock = 65536;  // elements
    int64_t step = std::max<int64_t>(1, kBlock / (size * shared_.width));
    for (; panel < panel_end; panel += step) {
      int64_t at = s.begin + panel * shared_.width;
      int64_t count =
          std::min((std::min(panel + step, panel_end) - panel) * shared_.width,
                   s.begin + s.size - at);
      int64_t i = shares_a_ ? at : begin, m = shares_a_ ? count : size;
      int64_t j = shares_a_ ? begin : at, n = shares_a_ ? size : count;
      // One cache line more than a power of two, as in attention.cc.
      int64_t ldc = RoundUp(n, 16) + 16;
      auto* c = reinterpret_cast<float*>(
          scratch_c.Get(static_cast<size_t>(m * ldc) * sizeof(float)));
      uint16_t* narrow = nullptr;
      if (kernels_.narrows && p_.c_dtype == DType::kBFloat16) {
        narrow = static_cast<uint16_t*>(p_.c) + i * p_.ldc + j;
      }
      for (int64_t k = 0; k < s.depth; k += layer_) {
        const char* own = packed + (keeps ? k * row : 0);
        const char* shared = PanelAt(s, k, panel);
        if (!keeps) PackOwn(s, k, begin, size, packed);
        Multiply(s, k, i, m, shares_a_ ? shared : own, j, n,
                 shares_a_ ? own : shared, c, ldc, narrow);
      }
      for (int64_t r = 0; r < m && !narrow; ++r) {
        WriteResult(p_, i + r, j, c + r * ldc, n);
      }
    }
  }

  // Rows i … i + m by columns j … j + n in the layer at the slab's row k. Sums
  // are in c; the last layer writes to `narrow` instead if it is not null.
  void Multiply(const Slab& s, int64_t k, int64_t i, int64_t m, const char* a,
                int64_t j, int64_t n, const char* b, float* c, int64_t ldc,
                uint16_t* narrow = nullptr) const {
    int64_t depth = LayerDepth(s, k), a_row = 0;
    if (a_in_place_) {
      a_row = p_.a.ld * element_;
      a = static_cast<const char*>(p_.a.data) + i * a_row +
          (s.k + k) * element_;
    }
    auto bias = static_cast<const float*>(p_.bias);
    int64_t group = p_.scale_depth > 0 ? (s.k + k) / p_.scale_depth : 0;
    kernels_.block(
        {.m = m,
         .n = n,
         .depth = RoundUp(depth, unit_),
         .a = a,
         .a_row = a_row,
         .a_step = 4,
         .b = b,
         .b_panel = PanelBytesOf(kernels_.columns, depth),
         .c = c,
         .ldc = ldc,
         .add = s.k + k > 0 || p_.accumulate,
         .last = s.k + k + depth == p_.k,
         .add_last = p_.add && !finishes_apart_,
         .scale = p_.scale,
         .bias = bias ? bias + j : nullptr,
         .row_scale = p_.row_scale ? p_.row_scale + group * p_.m + i : nullptr,
         .column_scale =
             p_.row_scale ? p_.column_scale + group * p_.n + j : nullptr,
         .scale_sum = p_.scale_depth > 0,
         .narrow = narrow,
         .narrow_ld = p_.ldc});
  }

  const GemmProblem& p_;
  const GemmKernels& kernels_;
  bool shares_a_;
  Side shared_, own_;
  int64_t unit_ = 1;     // all depths are multiples of it
  int64_t layer_ = 1;    // depth of a layer, a divisor of kSlabDepth
  int64_t element_ = 4;  // bytes, in panels
  bool a_in_place_ = false;
  // A sum must be finished before it is rounded. A sum of several layers that
  // is added to c is finished elsewhere, too: c holds what it is added to.
  bool finishes_apart_ = false;
  char* packed_ = nullptr;
};

void EmptySum(const GemmProblem& p) {
  if (p.accumulate) return;
  std::vector<float> row(static_cast<size_t>(p.n));
  if (p.bias) std::copy_n(static_cast<const float*>(p.bias), p.n, row.data());
  for (int64_t i = 0; i < p.m; ++i) {
    WriteResult(p, i, 0, row.data(), p.n);
  }
}

// Exact in bfloat16.
bool IsSmall(DType dtype) {
  return IsFloat8(dtype) || dtype == DType::kBFloat16;
}

// Checks everything that input can cause. Returns the problem with ldc set.
GemmProblem Prepared(const GemmProblem& problem) {
  GemmProblem p = problem;
  if (p.ldc == 0) p.ldc = p.n;
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
  for (int64_t size : {p.m, p.n, p.k, p.a.ld, p.b.ld, p.ldc}) {
    Check(size >= 0 && size <= kMax,
          "[matrix product] expected sizes below 2^31, got ", p.m, " x ", p.k,
          " x ", p.n);
  }
  for (DType dtype : {p.a.dtype, p.b.dtype}) {
    Check(dtype == DType::kFloat || dtype == DType::kFloat16 ||
              dtype == DType::kDouble || IsSmall(dtype),
          "[matrix product] expected a float dtype, got ", Name(dtype));
  }
  Check((p.a.dtype == DType::kDouble) == (p.b.dtype == DType::kDouble),
        "[matrix product] expected two double operands or none, got ",
        Name(p.a.dtype), " and ", Name(p.b.dtype));
  Check(!p.accumulate || (p.scale == 1.0f && p.bias == nullptr && !p.add),
        "[matrix product] expected no scale, bias and add beside accumulate");
  bool narrow = IsHalf(p.c_dtype);
  Check(p.c_dtype == DType::kFloat ||
            (narrow && !p.accumulate && !p.add && p.a.dtype != DType::kDouble),
        "[matrix product] expected a float result, got ", Name(p.c_dtype));
  return p;
}

GemmOperand Moved(GemmOperand x, int64_t elements) {
  x.data = static_cast<const char*>(x.data) +
           elements * static_cast<int64_t>(ByteSize(x.dtype));
  return x;
}

std::atomic<Accumulation> accumulation = Accumulation::kFloat;

// Computes a product with a large k in memory of its own, and adds it to c. If
// PackedProduct added such a product, it would pack its operands more often.
void AddDeep(const GemmProblem& p, const GemmKernels& kernels) {
  auto product =
      std::make_unique_for_overwrite<float[]>(static_cast<size_t>(p.m * p.n));
  GemmProblem alone = p;
  alone.c = product.get();
  alone.ldc = p.n;
  alone.add = false;
  PackedProduct(alone, kernels).Run();
  ParallelFor(p.m, std::max<int64_t>(1, 32768 / p.n),
              [&](int64_t begin, int64_t end) {
                for (int64_t i = begin; i < end; ++i) {
                  WriteResult(p, i, 0, product.get() + i * p.n, p.n);
                }
              });
}

void Packed(const GemmProblem& p, const GemmKernels& kernels) {
  constexpr int64_t kDeep = 1024;
  if (p.add && p.k > kDeep) return AddDeep(p, kernels);
  PackedProduct(p, kernels).Run();
}

void RunOne(GemmProblem p, const GemmOffsets& at) {
  assert(!p.row_scale == !p.column_scale);
  assert(!p.row_scale ||
         (p.scale == 1.0f && !p.accumulate && p.a.dtype != DType::kDouble));
  assert(p.scale_depth == 0 ||
         (p.row_scale && p.scale_depth >= 32 && 256 % p.scale_depth == 0));
  bool is_double = p.a.dtype == DType::kDouble;
  p.a = Moved(p.a, at.a);
  p.b = Moved(p.b, at.b);
  p.c = static_cast<char*>(p.c) + at.c * ResultBytes(p);
  if (is_double) {
    DoubleGemm(p);
  } else if (p.k == 0) {
    EmptySum(p);
  } else if (accumulation == Accumulation::kHopper && IsFloat8(p.a.dtype) &&
             IsFloat8(p.b.dtype)) {
    HopperGemm(p);
  } else if (IsSmall(p.a.dtype) && IsSmall(p.b.dtype)) {
    Packed(p, Bf16Kernels());
  } else {
    Packed(p, FloatKernels());
  }
}

}  // namespace

void Gemm(const GemmProblem& problem) {
  GemmProblem p = Prepared(problem);
  if (p.m > 0 && p.n > 0) RunOne(p, {});
}

void BatchedGemm(const GemmProblem& problem,
                 std::span<const GemmOffsets> batch) {
  GemmProblem p = Prepared(problem);
  if (p.m == 0 || p.n == 0 || batch.empty()) return;
  auto count = static_cast<int64_t>(batch.size());
  // Below about 10^7 multiplications, threads inside one product cost more than
  // they gain. Below about 10^4, so does one thread for each product.
  double work = static_cast<double>(p.m) * static_cast<double>(p.n) *
                static_cast<double>(std::max<int64_t>(p.k, 1));
  if (count >= NumThreads() && work < 1e7) {
    auto grain = static_cast<int64_t>(std::max(1.0, 1e4 / work));
    ParallelFor(count, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        RunOne(p, batch[static_cast<size_t>(i)]);
      }
    });
  } else {
    for (const GemmOffsets& at : batch) RunOne(p, at);
  }
}

void SetAccumulation(Accumulation how) { accumulation = how; }
Accumulation ActiveAccumulation() { return accumulation; }

std::string GemmBackend() {
  return std::string("packed ") + FloatKernels().name + ", 8-bit " +
         Bf16Kernels().name;
}

}  // namespace onnx_fp8
