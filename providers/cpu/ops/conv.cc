// SPDX-License-Identifier: Apache-2.0
//
// Conv and ConvTranspose by im2col, or by planes. For Conv: x (N,C,spatial), w
// (M,C/g,kernel) and y (N,M,spatial); the columns of one group are (C/g · taps,
// positions).
#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/parallel.h"
#include "providers/cpu/dispatch.h"
#include "providers/cpu/gemm/gemm.h"
#include "providers/cpu/ops/conv_planes.h"
#include "providers/kernel.h"
#include "providers/ops/arguments.h"
#include "providers/ops/divide_up.h"
#include "providers/ops/window.h"

namespace onnx_fp8 {
namespace {

// The columns of a convolution (im2col): row c · taps + t holds the elements of
// channel c that tap t of the window reads, by output position.

// The output positions for which each tap lies inside the input, by axis; found
// once for all columns of a window.
class TapRanges {
 public:
  explicit TapRanges(const Window& w) {
    for (int64_t k = 0; k < w.kernel[1]; ++k) {
      lines_.push_back(InsideRange(w, 1, k));
    }
    for (int64_t k = 0; k < w.kernel[2]; ++k) {
      columns_.push_back(InsideRange(w, 2, k));
    }
  }

  TapRange Lines(int64_t kh) const { return lines_[static_cast<size_t>(kh)]; }
  TapRange Columns(int64_t kw) const {
    return columns_[static_cast<size_t>(kw)];
  }

 private:
  std::vector<TapRange> lines_, columns_;
};

// A tap of the window, in the order of a kernel's elements.
class Tap {
 public:
  Tap(const Window& w, int64_t index)
      : kw(index % w.kernel[2]),
        kh(index / w.kernel[2] % w.kernel[1]),
        kd(index / (w.kernel[2] * w.kernel[1])) {}

  // False behind the last tap, where it begins anew.
  bool Advance(const Window& w) {
    if (++kw < w.kernel[2]) return true;
    kw = 0;
    if (++kh < w.kernel[1]) return true;
    kh = 0;
    if (++kd < w.kernel[0]) return true;
    kd = 0;
    return false;
  }

  int64_t kw, kh, kd;
};

// Calls row(column, input, count, inside_begin, inside_end) for each run: the
// output positions of begin … end that lie in one line. A run has `count`
// positions. Its first one is in column `column`. Its position i reads the
// element input + i · stride of the plane, if inside_begin <= i < inside_end;
// other positions read a zero.
template <typename Fn>
void ForEachRun(const Window& w, const Tap& tap, TapRange inside, int64_t begin,
                int64_t end, Fn row) {
  int64_t first = tap.kw * w.dilation[2] - w.pad[2];
  int64_t ow = begin % w.out[2], oh = begin / w.out[2] % w.out[1];
  int64_t od = begin / (w.out[2] * w.out[1]);
  for (int64_t p = begin; p < end;) {
    int64_t count = std::min(w.out[2] - ow, end - p);
    int64_t id = od * w.stride[0] + tap.kd * w.dilation[0] - w.pad[0];
    int64_t ih = oh * w.stride[1] + tap.kh * w.dilation[1] - w.pad[1];
    bool exists = id >= 0 && id < w.in[0] && ih >= 0 && ih < w.in[1];
    int64_t lo = std::clamp(inside.begin - ow, int64_t{0}, count);
    int64_t hi = std::clamp(inside.end - ow, lo, count);
    if (!exists) lo = hi = 0;
    int64_t line = exists ? (id * w.in[1] + ih) * w.in[2] : 0;
    row(p - begin, line + first + ow * w.stride[2], count, lo, hi);
    p += count;
    ow = 0;
    if (++oh == w.out[1]) oh = 0, ++od;
  }
}

// A row of the columns, run by run.
template <typename T>
void ReadRuns(const Window& w, const Tap& tap, TapRange inside, const T* x,
              int64_t begin, int64_t end, T* to) {
  int64_t step = w.stride[2];
  ForEachRun(
      w, tap, inside, begin, end,
      [&](int64_t at, int64_t in, int64_t count, int64_t lo, int64_t hi) {
        std::fill(to + at, to + at + lo, T{0});
        const T* from = x + in;
        if (step == 1) {
          std::copy(from + lo, from + hi, to + at + lo);
        } else {
          for (int64_t i = lo; i < hi; ++i) to[at + i] = from[i * step];
        }
        std::fill(to + at + hi, to + at + count, T{0});
      });
}

// Whether the window moves by one element, and the lines of x are as long as
// the lines of the result. Then a tap reads one piece of each plane of x.
bool Slides(const Window& w) {
  return w.stride[1] == 1 && w.stride[2] == 1 && w.in[2] == w.out[2];
}

// Few elements: a loop is shorter than a call.
template <typename T>
void Clear(int64_t begin, int64_t end, T* x) {
  for (int64_t i = begin; i < end; ++i) x[i] = T{0};
}

// A row of the columns: copies a piece of each plane, then clears the positions
// that read outside a line. REQUIRES: Slides.
template <typename T>
void ReadPlanes(const Window& w, const Tap& tap, const TapRanges& ranges,
                const T* x, int64_t begin, int64_t end, T* to) {
  const int64_t line = w.out[2], plane = w.out[1] * line;
  const int64_t shift = (tap.kh * w.dilation[1] - w.pad[1]) * line +
                        tap.kw * w.dilation[2] - w.pad[2];
  const TapRange lines = ranges.Lines(tap.kh), inside = ranges.Columns(tap.kw);
  const bool whole = inside.begin == 0 && inside.end == line;
  to -= begin;
  for (int64_t p = begin; p < end;) {
    int64_t od = w.out[0] == 1 ? 0 : p / plane, start = od * plane;
    int64_t stop = std::min(start + plane, end);
    int64_t id = od * w.stride[0] + tap.kd * w.dilation[0] - w.pad[0];
    bool exists = id >= 0 && id < w.in[0];
    // Positions whose line exists, and those whose element does in the plane.
    int64_t lo = std::clamp(start + lines.begin * line, p, stop);
    int64_t hi = std::clamp(start + lines.end * line, lo, stop);
    if (!exists) hi = lo;
    int64_t from = std::clamp(start - shift, lo, hi);
    int64_t until = std::clamp(start + w.in[1] * line - shift, from, hi);
    std::fill(to + p, to + from, T{0});
    if (from < until) {
      const T* source = x + id * w.in[1] * line + shift - start;
      std::copy(source + from, source + until, to + from);
    }
    std::fill(to + until, to + stop, T{0});
    // Here the copy took elements of the next line, or of the line before.
    int64_t first = start + lines.begin * line;
    if (first < lo) first = lo - (lo - start) % line;
    for (int64_t l = first; !whole && l < hi; l += line) {
      Clear(std::max(l, lo), std::min(l + inside.begin, hi), to);
      Clear(std::max(l + inside.end, lo), std::min(l + line, hi), to);
    }
    p = stop;
  }
}

// Rows first … last of the columns of x (channels, in), at the positions begin
// … end; `ld` elements from row to row. `ranges`: the tap ranges of w. T: float
// or double.
template <typename T>
void ToColumns(const Window& w, const TapRanges& ranges, const T* x,
               int64_t first, int64_t last, int64_t begin, int64_t end,
               int64_t ld, T* columns) {
  int64_t taps = Window::Product(w.kernel), plane = Window::Product(w.in);
  Tap tap(w, first % taps);
  x += first / taps * plane;
  bool slides = Slides(w);
  for (int64_t row = first; row < last; ++row, columns += ld) {
    if (slides) {
      ReadPlanes(w, tap, ranges, x, begin, end, columns);
    } else {
      ReadRuns(w, tap, ranges.Columns(tap.kw), x, begin, end, columns);
    }
    if (!tap.Advance(w)) x += plane;
  }
}

// The adjoint of ToColumns: adds each element of all columns to the element of
// x (channels, in) that it was read from. A row has end - begin elements, and
// the next row follows it directly. Channels run in parallel.
template <typename T>
void AddColumns(const Window& w, const TapRanges& ranges, const T* columns,
                int64_t channels, int64_t begin, int64_t end, T* x) {
  int64_t taps = Window::Product(w.kernel), plane = Window::Product(w.in);
  int64_t positions = end - begin, step = w.stride[2];
  ParallelFor(channels, 1, [&](int64_t from, int64_t to) {
    const T* column = columns + from * taps * positions;
    for (int64_t c = from; c < to; ++c) {
      T* target = x + c * plane;
      Tap tap(w, 0);
      do {
        ForEachRun(
            w, tap, ranges.Columns(tap.kw), begin, end,
            [&](int64_t at, int64_t in, int64_t, int64_t lo, int64_t hi) {
              const T* source = column + at;
              T* sum = target + in;
              if (step == 1) {
                for (int64_t i = lo; i < hi; ++i) sum[i] += source[i];
              } else {
                for (int64_t i = lo; i < hi; ++i) sum[i * step] += source[i];
              }
            });
        column += positions;
      } while (tap.Advance(w));
    }
  });
}

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
