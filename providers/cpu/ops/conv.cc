// SPDX-License-Identifier: Apache-2.0
//
// Conv and ConvTranspose by im2col, or by planes. For Conv: x (N,C,spatial), w
// (M,C/g,kernel) and y (N,M,spatial); the columns of one group are (C/g · taps,
// positions).
#include <algorithm>
#include <vector>

#include "base/parallel.h"
#include "providers/cpu/dispatch.h"
#include "providers/cpu/gemm/gemm.h"
#include "providers/cpu/ops/columns.h"
#include "providers/cpu/ops/conv_planes.h"
#include "providers/kernel.h"
#include "providers/ops/arguments.h"
#include "providers/ops/divide_up.h"
#include "providers/ops/window.h"

namespace onnx_fp8 {
namespace {

// Columns of at most this many elements: about half of an L2 cache.
constexpr int64_t kPatchElements = 128 * 1024;

struct ConvSizes {
  int64_t n = 0, group = 1;
  int64_t c = 0, m = 0;  // channels of x and y in one group
};

// y row of `count` elements = bias.
template <typename T>
void SetRows(const T* bias, int64_t rows, int64_t ld, int64_t count, T* y) {
  for (int64_t i = 0; i < rows; ++i) {
    std::fill_n(y + i * ld, count, bias ? bias[i] : T{0});
  }
}

// True for a window of one tap that reads every element once: x is its own
// columns.
bool IsPointwise(const Window& w) {
  return Window::Product(w.kernel) == 1 && w.in == w.out &&
         Window::Product(w.stride) == 1 && w.pad == Window::Axes{0, 0, 0};
}

// Groups of one channel with few results, or many groups of one result: too few
// products for a GEMM.
bool IsByPlanes(const Window& w, const ConvSizes& s) {
  if (IsPointwise(w) || !FitsPlanes(w)) return false;
  if (s.c == 1) return s.m <= 4;
  return s.c > 0 && s.m == 1 && s.n * s.group >= 16;
}

// Positions per task: the columns stay in the cache, and each thread has a
// task.
int64_t ChunkOf(int64_t rows, int64_t positions, int64_t other_tasks) {
  int64_t chunk = std::clamp<int64_t>(
      kPatchElements / std::max<int64_t>(rows, 1), 64, positions + 64);
  int64_t parts = DivideUp(NumThreads(), other_tasks);
  return std::min(chunk, DivideUp(positions, parts));
}

template <typename T>
void Convolve(const Window& w, const ConvSizes& s, const T* x, const T* weight,
              const T* bias, T* y) {
  int64_t rows = s.c * Window::Product(w.kernel);
  int64_t plane = Window::Product(w.in), positions = Window::Product(w.out);
  bool pointwise = IsPointwise(w);
  const TapRanges ranges(w);
  int64_t chunk = ChunkOf(rows, positions, s.n * s.group);
  int64_t chunks = DivideUp(positions, chunk);
  ParallelFor(s.n * s.group * chunks, 1, [&](int64_t first, int64_t last) {
    thread_local std::vector<T> columns;
    if (!pointwise) {
      columns.resize(static_cast<size_t>(rows * std::min(chunk, positions)));
    }
    for (int64_t task = first; task < last; ++task) {
      int64_t ng = task / chunks, g = ng % s.group;
      int64_t begin = task % chunks * chunk;
      int64_t end = std::min(begin + chunk, positions);
      const T* from = x + ng * s.c * plane;
      T* to = y + ng * s.m * positions + begin;
      SetRows(bias ? bias + g * s.m : nullptr, s.m, positions, end - begin, to);
      GemmProblem p = {.m = s.m,
                       .n = end - begin,
                       .k = rows,
                       .accumulate = true,
                       .c = to,
                       .ldc = positions};
      p.a = {weight + g * s.m * rows, DTypeOf<T>(), rows, false};
      p.b = {from + begin, DTypeOf<T>(), positions, false};
      if (!pointwise) {
        ToColumns(w, ranges, from, 0, rows, begin, end, end - begin,
                  columns.data());
        p.b = {columns.data(), DTypeOf<T>(), end - begin, false};
      }
      Gemm(p);
    }
  });
}

// True if there is one window, as large as the input.
bool IsWhole(const Window& w) {
  bool dense = true;
  for (size_t i = 0; i < w.kernel.size(); ++i) {
    dense &= w.kernel[i] == 1 || w.dilation[i] == 1;
  }
  return dense && w.kernel == w.in && w.pad == Window::Axes{0, 0, 0} &&
         Window::Product(w.out) == 1;
}

// Its images are the rows of one matrix.
template <typename T>
void ConvolveWhole(const Window& w, const ConvSizes& s, const T* x,
                   const T* weight, const T* bias, T* y) {
  int64_t rows = s.c * Window::Product(w.in);
  for (int64_t g = 0; g < s.group; ++g) {
    GemmProblem p = {.m = s.n,
                     .n = s.m,
                     .k = rows,
                     .bias = bias ? bias + g * s.m : nullptr,
                     .c = y + g * s.m,
                     .ldc = s.group * s.m};
    p.a = {x + g * rows, DTypeOf<T>(), s.group * rows, false};
    p.b = {weight + g * s.m * rows, DTypeOf<T>(), rows, true};
    Gemm(p);
  }
}

// An image with fewer positions is too small for a product of its own.
constexpr int64_t kFewPositions = 32;

// Puts the columns of many images side by side, a block of rows at a time.
// Gradients of weights need that too: their windows are nearly as large as the
// input.
template <typename T>
void ConvolveTogether(const Window& w, const ConvSizes& s, const T* x,
                      const T* weight, const T* bias, T* y) {
  int64_t rows = s.c * Window::Product(w.kernel);
  int64_t plane = Window::Product(w.in), positions = Window::Product(w.out);
  int64_t most = std::max<int64_t>(1, 1024 / positions);
  const TapRanges ranges(w);
  std::vector<T> columns, result;
  for (int64_t task = 0; task < s.group * DivideUp(s.n, most); ++task) {
    int64_t g = task % s.group, image = task / s.group * most;
    int64_t images = std::min(most, s.n - image), width = images * positions;
    int64_t depth = std::clamp<int64_t>(kPatchElements / width, 64, rows + 64);
    columns.resize(static_cast<size_t>(depth * width));
    result.resize(static_cast<size_t>(s.m * width));
    SetRows(bias ? bias + g * s.m : nullptr, s.m, width, width, result.data());
    for (int64_t first = 0; first < rows; first += depth) {
      int64_t last = std::min(first + depth, rows);
      ParallelFor(images, 1, [&](int64_t from, int64_t to) {
        for (int64_t i = from; i < to; ++i) {
          ToColumns(w, ranges, x + ((image + i) * s.group + g) * s.c * plane,
                    first, last, 0, positions, width,
                    columns.data() + i * positions);
        }
      });
      GemmProblem p = {.m = s.m,
                       .n = width,
                       .k = last - first,
                       .accumulate = true,
                       .c = result.data()};
      p.a = {weight + g * s.m * rows + first, DTypeOf<T>(), rows, false};
      p.b = {columns.data(), DTypeOf<T>(), width, false};
      Gemm(p);
    }
    for (int64_t i = 0; i < images; ++i) {
      for (int64_t m = 0; m < s.m; ++m) {
        const T* from = result.data() + m * width + i * positions;
        int64_t at = ((image + i) * s.group + g) * s.m + m;
        std::copy(from, from + positions, y + at * positions);
      }
    }
  }
}

void Conv(KernelContext& ctx) {
  const Tensor &x = ctx.In(0), &weight = ctx.In(1);
  Window w = WindowOver(ctx, x.shape(), KernelOf(ctx));
  int64_t group = GroupOf(ctx, weight.dim(0));
  ConvSizes s = {x.dim(0), group, weight.dim(1), weight.dim(0) / group};
  Check(x.dim(1) == s.c * group, "[", ctx.Where(), "] expected ", s.c * group,
        " input channels, got ", x.dim(1));
  if (ctx.HasIn(2)) CheckOperand(ctx, 2, x.dtype(), {weight.dim(0)});
  Tensor& y = ctx.Out(0, x.dtype(), w.ShapeOf(s.n, weight.dim(0), w.out));
  if (y.size() == 0) return;
  DispatchFloat(x.dtype(), ctx.Where(), [&]<typename T>() {
    const T* bias = ctx.HasIn(2) ? ctx.In(2).data<T>() : nullptr;
    if (IsByPlanes(w, s)) {
      int64_t filters = s.group * s.m;
      ConvolvePlanes(w, s.n * filters, s.m, s.c, filters, x.data<T>(),
                     weight.data<T>(), bias, y.data<T>());
    } else if (s.n > 1 && IsWhole(w)) {
      ConvolveWhole(w, s, x.data<T>(), weight.data<T>(), bias, y.data<T>());
    } else if (s.n > 1 && Window::Product(w.out) < kFewPositions) {
      ConvolveTogether(w, s, x.data<T>(), weight.data<T>(), bias, y.data<T>());
    } else {
      Convolve(w, s, x.data<T>(), weight.data<T>(), bias, y.data<T>());
    }
  });
}

// x (N,C,out of w), weight (C,M/g,kernel), y (N,M,in of w).
template <typename T>
void Transposed(const Window& w, const ConvSizes& s, const T* x,
                const T* weight, const T* bias, T* y) {
  int64_t rows = s.m * Window::Product(w.kernel);
  int64_t plane = Window::Product(w.in), positions = Window::Product(w.out);
  int64_t chunk = ChunkOf(rows, positions, NumThreads());
  const TapRanges ranges(w);
  ParallelFor(s.n * s.group, 1, [&](int64_t first, int64_t last) {
    thread_local std::vector<T> columns;
    columns.resize(static_cast<size_t>(rows * chunk));
    for (int64_t ng = first; ng < last; ++ng) {
      int64_t g = ng % s.group;
      T* to = y + ng * s.m * plane;
      SetRows(bias ? bias + g * s.m : nullptr, s.m, plane, plane, to);
      for (int64_t begin = 0; begin < positions; begin += chunk) {
        int64_t end = std::min(begin + chunk, positions);
        GemmProblem p = {
            .m = rows, .n = end - begin, .k = s.c, .c = columns.data()};
        p.a = {weight + g * s.c * rows, DTypeOf<T>(), rows, true};
        p.b = {x + ng * s.c * positions + begin, DTypeOf<T>(), positions,
               false};
        Gemm(p);
        AddColumns(w, ranges, columns.data(), s.m, begin, end, to);
      }
    }
  });
}

// With strides of 1 it is a convolution, with each kernel reversed.
Window Reversed(const Window& w) {
  Window reversed = w;
  std::swap(reversed.in, reversed.out);
  for (size_t i = 0; i < w.pad.size(); ++i) {
    reversed.pad[i] = (w.kernel[i] - 1) * w.dilation[i] - w.pad[i];
  }
  return reversed;
}

// The same for that convolution. REQUIRES: one channel of x in each group.
template <typename T>
void TransposedByPlanes(const Window& reversed, const ConvSizes& s, const T* x,
                        const T* weight, const T* bias, T* y) {
  int64_t taps = Window::Product(reversed.kernel), filters = s.group * s.m;
  std::vector<T> kernels(static_cast<size_t>(filters * taps));
  for (int64_t f = 0; f < filters; ++f) {
    const T* kernel = weight + f * taps;
    std::reverse_copy(kernel, kernel + taps, kernels.begin() + f * taps);
  }
  ConvolvePlanes(reversed, s.n * filters, s.m, 1, filters, x, kernels.data(),
                 bias, y);
}

void ConvTranspose(KernelContext& ctx) {
  const Tensor &x = ctx.In(0), &weight = ctx.In(1);
  Window w = TransposedWindow(ctx, x.shape(), KernelOf(ctx));
  int64_t group = GroupOf(ctx, x.dim(1));
  ConvSizes s = {x.dim(0), group, x.dim(1) / group, weight.dim(1)};
  Check(weight.dim(0) == x.dim(1), "[", ctx.Where(), "] expected a weight for ",
        x.dim(1), " input channels, got ", weight.dim(0));
  if (ctx.HasIn(2)) CheckOperand(ctx, 2, x.dtype(), {s.m * group});
  Tensor& y = ctx.Out(0, x.dtype(), w.ShapeOf(s.n, s.m * group, w.in));
  if (y.size() == 0) return;
  DispatchFloat(x.dtype(), ctx.Where(), [&]<typename T>() {
    const T* bias = ctx.HasIn(2) ? ctx.In(2).data<T>() : nullptr;
    const Window reversed = Reversed(w);
    bool dense = Window::Product(w.stride) == 1;
    if (s.c == 1 && dense && IsByPlanes(reversed, s)) {
      TransposedByPlanes(reversed, s, x.data<T>(), weight.data<T>(), bias,
                         y.data<T>());
    } else {
      Transposed(w, s, x.data<T>(), weight.data<T>(), bias, y.data<T>());
    }
  });
}

// x (N, C·taps, positions) → y (N, C, image): the columns, added up.
void Col2Im(KernelContext& ctx) {
  const Tensor& x = Operand(ctx, 0);
  std::vector<int64_t> image = IntsIn(ctx, 1), block = IntsIn(ctx, 2);
  int64_t taps = 1;
  for (int64_t size : block) {
    Check(size > 0 && !__builtin_mul_overflow(taps, size, &taps), "[",
          ctx.Where(), "] expected a block of sizes above 0, got ",
          ToString(block));
  }
  Check(x.rank() == 3 && x.dim(1) % taps == 0, "[", ctx.Where(),
        "] expected x (N,C·", taps, ",positions), got ", ToString(x.shape()));
  Shape shape = {x.dim(0), x.dim(1) / taps};
  shape.insert(shape.end(), image.begin(), image.end());
  Window w = WindowOver(ctx, shape, block);
  Check(x.dim(2) == Window::Product(w.out), "[", ctx.Where(), "] expected ",
        Window::Product(w.out), " positions, got ", x.dim(2));
  Tensor& y = ctx.Out(0, x.dtype(), shape);
  if (y.size() == 0) return;
  const TapRanges ranges(w);
  DispatchFloat(x.dtype(), ctx.Where(), [&]<typename T>() {
    std::fill_n(y.data<T>(), y.size(), T{0});
    // One image with the channels of all images.
    AddColumns(w, ranges, x.data<T>(), x.dim(0) * shape[1], 0, x.dim(2),
               y.data<T>());
  });
}

}  // namespace

void RegisterConv(KernelRegistry& r) {
  r.Add("Col2Im", Widened<Col2Im>);
  r.Add("Conv", Widened<Conv>);
  r.Add("ConvTranspose", Widened<ConvTranspose>);
}

}  // namespace onnx_fp8
