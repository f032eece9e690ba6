// SPDX-License-Identifier: Apache-2.0
#include "providers/cpu/ops/columns.h"

#include <algorithm>

#include "base/parallel.h"

namespace onnx_fp8 {
namespace {

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

}  // namespace

TapRanges::TapRanges(const Window& w) {
  for (int64_t k = 0; k < w.kernel[1]; ++k) {
    lines_.push_back(InsideRange(w, 1, k));
  }
  for (int64_t k = 0; k < w.kernel[2]; ++k) {
    columns_.push_back(InsideRange(w, 2, k));
  }
}

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

template void ToColumns(const Window&, const TapRanges&, const float*, int64_t,
                        int64_t, int64_t, int64_t, int64_t, float*);
template void ToColumns(const Window&, const TapRanges&, const double*, int64_t,
                        int64_t, int64_t, int64_t, int64_t, double*);
template void AddColumns(const Window&, const TapRanges&, const float*, int64_t,
                         int64_t, int64_t, float*);
template void AddColumns(const Window&, const TapRanges&, const double*,
                         int64_t, int64_t, int64_t, double*);

}  // namespace onnx_fp8
