// SPDX-License-Identifier: Apache-2.0
#include "providers/cpu/gemm/gemm.h"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <limits>

#include "onnx_fp8/check.h"
#include "onnx_fp8/parallel.h"
#include "providers/cpu/gemm/double.h"
#include "providers/cpu/gemm/hopper.h"
#include "providers/cpu/gemm/kernels.h"
#include "providers/cpu/gemm/scratch.h"

namespace onnx_fp8 {
namespace {

int64_t DivideUp(int64_t n, int64_t d) { return (n + d - 1) / d; }

thread_local Scratch scratch_a, scratch_b;

// The block of op(a) or op(b) that begins at element (w, k), w counting rows of
// op(a), columns of op(b). `across`: k runs across rows of memory.
PanelSource From(const GemmOperand& x, bool across, int64_t w, int64_t k) {
  int64_t element = across ? k * x.ld + w : w * x.ld + k;
  return {static_cast<const char*>(x.data) +
              element * static_cast<int64_t>(ByteSize(x.dtype)),
          x.dtype, x.ld, across};
}

// What of B is packed at a time: columns j … j + n, rows k … k + depth.
struct Slab {
  int64_t j, n;
  int64_t k, depth;
};

// A slab of B is packed, then blocks of rows of A are packed and multiplied
// with it. Threads wait for each other at the end of both only: where another
// program has a core, each wait may cost more than a small product.
class PackedProduct {
 public:
  PackedProduct(const GemmProblem& p, const GemmKernels& kernels)
      : p_(p), kernels_(kernels) {
    unit_ = std::max(DepthUnit(kernels.a_layout), DepthUnit(kernels.b_layout));
    element_ = static_cast<int64_t>(PanelElementBytes(kernels.b_layout));
    layer_ = p.scale_depth > 0 ? p.scale_depth : kernels.max_depth;
  }

  void Run() {
    constexpr int64_t kSlabBytes = int64_t{16} << 20, kSlabDepth = 8192;
    int64_t depth = std::min(p_.k, kSlabDepth);
    int64_t n = std::clamp(kSlabBytes / (depth * element_), kernels_.columns,
                           kernels_.max_n);
    n = n / kernels_.columns * kernels_.columns;
    for (int64_t j = 0; j < p_.n; j += n) {
      for (int64_t k = 0; k < p_.k; k += depth) {
        Slab slab = {j, std::min(n, p_.n - j), k, std::min(depth, p_.k - k)};
        PackB(slab);
        MultiplySlab(slab);
      }
    }
  }

 private:
  int64_t Panels(int64_t n) const { return DivideUp(n, kernels_.columns); }

  // Depth of the layer of a slab that begins at row k of it. Layers follow each
  // other in memory, each with all panels of the slab.
  int64_t LayerDepth(const Slab& s, int64_t k) const {
    return std::min(layer_, s.depth - k);
  }

  int64_t PanelBytesOf(int64_t depth) const {
    return kernels_.columns * RoundUp(depth, unit_) * element_;
  }

  // Where panel `panel` of the layer at row k of the slab lies.
  char* PanelAt(const Slab& s, int64_t k, int64_t panel) const {
    return b_ + k * kernels_.columns * element_ * Panels(s.n) +
           panel * PanelBytesOf(LayerDepth(s, k));
  }

  void PackB(const Slab& s) {
    int64_t width = kernels_.columns, panels = Panels(s.n);
    b_ = scratch_b.Get(PanelBytes(kernels_.b_layout, width, s.n, s.depth));
    int64_t layers = DivideUp(s.depth, layer_);
    // About 32k elements: some ten microseconds.
    int64_t grain =
        std::max<int64_t>(1, 32768 / (width * std::min(s.depth, layer_)));
    ParallelFor(layers * panels, grain, [&](int64_t first, int64_t last) {
      while (first < last) {  // the part of one layer
        int64_t k = first / panels * layer_;
        int64_t panel = first % panels;
        int64_t count = std::min(panels - panel, last - first);
        int64_t begin = panel * width;
        int64_t end = std::min(begin + count * width, s.n);
        PackPanels(kernels_.b_layout, width,
                   From(p_.b, !p_.b.transposed, s.j + begin, s.k + k),
                   end - begin, LayerDepth(s, k), PanelAt(s, k, panel));
        first += count;
      }
    });
  }

  // Rows are cut so that every thread gets several blocks, all as large as the
  // others but for a panel; columns where the rows don't suffice.
  void MultiplySlab(const Slab& s) {
    int64_t threads = NumThreads(), wanted = threads > 1 ? 4 * threads : 1;
    double work = static_cast<double>(p_.m) * static_cast<double>(s.n) *
                  static_cast<double>(s.depth);
    if (work < 2e5) wanted = 1;  // a few microseconds on one thread
    int64_t rows = kernels_.rows, columns = kernels_.columns;
    int64_t row_panels = DivideUp(p_.m, rows), panels = Panels(s.n);
    int64_t row_blocks = std::max(
        wanted, RoundUp(DivideUp(row_panels, kernels_.max_m / rows), threads));
    row_blocks = std::min(row_blocks, row_panels);
    int64_t column_blocks = std::min(DivideUp(wanted, row_blocks), panels);
    ParallelTasks(row_blocks * column_blocks, [&](int64_t task) {
      int64_t row = task / column_blocks, column = task % column_blocks;
      int64_t i = row * row_panels / row_blocks * rows;
      int64_t i_end = (row + 1) * row_panels / row_blocks * rows;
      int64_t panel = column * panels / column_blocks;
      int64_t panel_end = (column + 1) * panels / column_blocks;
      for (int64_t k = 0; k < s.depth; k += layer_) {
        MultiplyBlock(s, k, i, std::min(i_end, p_.m) - i, panel,
                      std::min(panel_end * columns, s.n) - panel * columns);
      }
    });
  }

  // Rows i … i + m by n of the slab's columns from `panel` on, of the layer
  // at row k of the slab.
  void MultiplyBlock(const Slab& s, int64_t k, int64_t i, int64_t m,
                     int64_t panel, int64_t n) {
    int64_t depth = LayerDepth(s, k);
    char* a =
        scratch_a.Get(PanelBytes(kernels_.a_layout, kernels_.rows, m, depth));
    PackPanels(kernels_.a_layout, kernels_.rows,
               From(p_.a, p_.a.transposed, i, s.k + k), m, depth, a);
    int64_t j = s.j + panel * kernels_.columns;
    auto bias = static_cast<const float*>(p_.bias);
    int64_t group = p_.scale_depth > 0 ? (s.k + k) / p_.scale_depth : 0;
    kernels_.block(
        {.m = m,
         .n = n,
         .depth = RoundUp(depth, unit_),
         .a = a,
         .b = PanelAt(s, k, panel),
         .b_panel = PanelBytesOf(depth),
         .c = static_cast<float*>(p_.c) + i * p_.ldc + j,
         .ldc = p_.ldc,
         .add = s.k + k > 0 || p_.accumulate,
         .last = s.k + k + depth == p_.k,
         .scale = p_.scale,
         .bias = bias ? bias + j : nullptr,
         .row_scale = p_.row_scale ? p_.row_scale + group * p_.m + i : nullptr,
         .column_scale =
             p_.row_scale ? p_.column_scale + group * p_.n + j : nullptr,
         .scale_sum = p_.scale_depth > 0});
  }

  const GemmProblem& p_;
  const GemmKernels& kernels_;
  int64_t unit_ = 1;     // all depths are multiples of it
  int64_t layer_ = 1;    // depth of a layer, a divisor of kSlabDepth
  int64_t element_ = 4;  // bytes, in B's panels
  char* b_ = nullptr;
};

void EmptySum(const GemmProblem& p) {
  if (p.accumulate) return;
  auto bias = static_cast<const float*>(p.bias);
  for (int64_t i = 0; i < p.m; ++i) {
    float* c = static_cast<float*>(p.c) + i * p.ldc;
    for (int64_t j = 0; j < p.n; ++j) c[j] = bias ? bias[j] : 0.0f;
  }
}

bool IsSmall(DType dtype) {
  return IsFloat8(dtype) || dtype == DType::kBFloat16;
}

// Checks what input can cause. Returns the problem with ldc filled in.
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
    Check(dtype == DType::kFloat || dtype == DType::kDouble || IsSmall(dtype),
          "[matrix product] expected a float dtype, got ", Name(dtype));
  }
  Check((p.a.dtype == DType::kDouble) == (p.b.dtype == DType::kDouble),
        "[matrix product] expected two double operands or none, got ",
        Name(p.a.dtype), " and ", Name(p.b.dtype));
  Check(!p.accumulate || (p.scale == 1.0f && p.bias == nullptr),
        "[matrix product] expected no scale and bias beside accumulate");
  return p;
}

GemmOperand Moved(GemmOperand x, int64_t elements) {
  x.data = static_cast<const char*>(x.data) +
           elements * static_cast<int64_t>(ByteSize(x.dtype));
  return x;
}

std::atomic<Accumulation> accumulation = Accumulation::kFloat;

void RunOne(GemmProblem p, const GemmOffsets& at) {
  assert(!p.row_scale == !p.column_scale);
  assert(!p.row_scale ||
         (p.scale == 1.0f && !p.accumulate && p.a.dtype != DType::kDouble));
  assert(p.scale_depth == 0 ||
         (p.row_scale && p.scale_depth >= 32 && 256 % p.scale_depth == 0));
  bool is_double = p.a.dtype == DType::kDouble;
  p.a = Moved(p.a, at.a);
  p.b = Moved(p.b, at.b);
  p.c = static_cast<char*>(p.c) + at.c * (is_double ? 8 : 4);
  if (is_double) {
    DoubleGemm(p);
  } else if (p.k == 0) {
    EmptySum(p);
  } else if (accumulation == Accumulation::kHopper && IsFloat8(p.a.dtype) &&
             IsFloat8(p.b.dtype)) {
    HopperGemm(p);
  } else if (IsSmall(p.a.dtype) && IsSmall(p.b.dtype)) {
    PackedProduct(p, Bf16Kernels()).Run();
  } else {
    PackedProduct(p, FloatKernels()).Run();
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
  // Below about 10^7 multiplications threads inside one product cost more
  // than they bring; below about 10^4 so does a thread for one product.
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
