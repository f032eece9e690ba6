// SPDX-License-Identifier: Apache-2.0
//
// The loops behind all ops that only move elements. They move up to 16 bytes at
// a time where elements lie side by side. Where rows become columns, tiles go
// through shared memory, so that both sides are read and written in rows.
// Traffic: each element of the result is read once and written once.
#include <algorithm>
#include <vector>

#include "providers/cuda/core/device.h"
#include "providers/cuda/core/elementwise.h"
#include "providers/cuda/core/many.h"
#include "providers/cuda/core/rows.h"
#include "providers/cuda/ops/strided.h"
#include "providers/cuda/ops/units.h"
#include "providers/kernel.h"
#include "providers/ops/movement.h"

namespace onnx_fp8::cuda {
namespace {

constexpr int kMostAxes = 8;

// Divides numbers below 2³¹ by a product and a shift.
class ShortDivisor {
 public:
  ShortDivisor() = default;
  // REQUIRES: 0 < size < 2³¹.
  explicit ShortDivisor(int64_t size) {
    while (int64_t{1} << shift_ < size) ++shift_;
    int64_t over = (int64_t{1} << shift_) - size;
    factor_ = static_cast<uint32_t>((over << 32) / size + 1);
  }
  __device__ uint32_t Quotient(uint32_t x) const {
    uint64_t product = static_cast<uint64_t>(x) * factor_;
    return (static_cast<uint32_t>(product >> 32) + x) >> shift_;
  }

 private:
  uint32_t factor_ = 0;
  int shift_ = 0;
};

struct Walk {
  int axes;
  int64_t n;
  int64_t sizes[kMostAxes], from[kMostAxes], to[kMostAxes];
};

// A Walk of fewer than 2³¹ elements, as the kernel gets it.
struct ShortWalk {
  int axes;
  uint32_t n, sizes[kMostAxes];
  ShortDivisor divisors[kMostAxes];
  int64_t from[kMostAxes], to[kMostAxes];
};

// All loads start before the first store.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    CopyKernel(ShortWalk w, const T* src, T* dst) {
  uint32_t at[kAtOnce], rest[kAtOnce];
  int64_t from[kAtOnce] = {}, to[kAtOnce] = {};
  for (uint32_t v = 0; v < kAtOnce; ++v) {
    at[v] = (blockIdx.x * kAtOnce + v) * kThreads + threadIdx.x;
    rest[v] = at[v];
  }
  ONNX_FP8_KEEP_LOOP
  for (int a = w.axes - 1; a >= 0; --a) {
    for (int v = 0; v < kAtOnce; ++v) {
      uint32_t outer = a > 0 ? w.divisors[a].Quotient(rest[v]) : 0;
      int64_t index = rest[v] - outer * w.sizes[a];
      rest[v] = outer;
      from[v] += index * w.from[a];
      to[v] += index * w.to[a];
    }
  }
  T values[kAtOnce];
  for (int v = 0; v < kAtOnce; ++v) {
    if (at[v] < w.n) values[v] = src[from[v]];
  }
  for (int v = 0; v < kAtOnce; ++v) {
    if (at[v] < w.n) dst[to[v]] = values[v];
  }
}

// Axes that src and dst step through alike become one.
Walk Merged(std::span<const int64_t> shape, std::span<const int64_t> from,
            std::span<const int64_t> to, const std::string& where) {
  Walk w = {0, NumElements(Shape(shape.begin(), shape.end())), {}, {}, {}};
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 1) continue;
    int last = w.axes - 1;
    if (w.axes > 0 && w.from[last] == from[i] * shape[i] &&
        w.to[last] == to[i] * shape[i]) {
      w.sizes[last] *= shape[i];
      w.from[last] = from[i];
      w.to[last] = to[i];
      continue;
    }
    Check(w.axes < kMostAxes, "[", where, "] expected at most ", kMostAxes,
          " axes that can't be merged, got more");
    w.sizes[w.axes] = shape[i];
    w.from[w.axes] = from[i];
    w.to[w.axes++] = to[i];
  }
  return w;
}

// Makes the elements as wide as all runs and addresses allow. Returns the bytes
// of an element.
size_t Vectorize(Walk& w, size_t bytes, const void* src, const void* dst) {
  int last = w.axes - 1;
  if (last < 0 || w.from[last] != 1 || w.to[last] != 1) return bytes;
  size_t unit = UnitOf(bytes, {src, dst}, {w.sizes[last]});
  for (int a = 0; a < last; ++a) {
    unit = std::min(unit, UnitOf(bytes, {}, {w.from[a], w.to[a]}));
  }
  auto count = static_cast<int64_t>(unit / bytes);
  w.n /= count;
  w.sizes[last] /= count;
  for (int a = 0; a < last; ++a) w.from[a] /= count, w.to[a] /= count;
  return unit;
}

// Walks of many elements are cut into halves.
template <typename T>
void Start(const KernelContext& ctx, Walk w, const T* src, T* dst) {
  constexpr int64_t kMost = (int64_t{1} << 31) - kPerBlock;
  if (w.n > kMost) {
    auto* longest = std::max_element(w.sizes, w.sizes + w.axes);
    auto a = longest - w.sizes;
    int64_t size = *longest, half = size / 2, each = w.n / size;
    *longest = half;
    w.n = half * each;
    Start(ctx, w, src, dst);
    *longest = size - half;
    w.n = (size - half) * each;
    return Start(ctx, w, src + half * w.from[a], dst + half * w.to[a]);
  }
  ShortWalk s = {.axes = w.axes, .n = static_cast<uint32_t>(w.n)};
  for (int a = 0; a < w.axes; ++a) {
    s.sizes[a] = static_cast<uint32_t>(w.sizes[a]);
    s.divisors[a] = ShortDivisor(w.sizes[a]);
    s.from[a] = w.from[a];
    s.to[a] = w.to[a];
  }
  Launch(CopyKernel<T>, static_cast<unsigned>(DivideUp(w.n, kPerBlock)),
         kThreads, 0, QueueOf(ctx).stream(), s, src, dst);
}

// ---- rows become columns

// Rows of src, along axis `columns` of a walk, and rows of dst, along axis
// `rows`. The other axes are around them.
struct RowsToColumns {
  Walk around;
  int64_t rows, columns;
  int64_t from_row, to_column;  // from one row to the next in src, in dst
  int64_t down, across;         // tiles
};

template <typename T>
inline constexpr int kSideOf = sizeof(T) <= 2 ? 64 : 32;
// Fewer rows or columns would leave most of a tile empty.
constexpr int64_t kLeastSide = 16;

// All loads of a tile start before the first store. Rows of the tile begin in
// different banks.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    RowsToColumnsKernel(RowsToColumns t, const T* src, T* dst) {
  constexpr int kSide = kSideOf<T>, kStep = kThreads / kSide;
  constexpr int kEach = kSide / kStep;
  constexpr int kPad = sizeof(T) < 4 ? 4 / sizeof(T) : 1;
  __shared__ T tile[kSide][kSide + kPad];
  int64_t block = blockIdx.x;
  int64_t rest = Quotient(block, t.across);
  int64_t column = (block - rest * t.across) * kSide;
  int64_t outer = Quotient(rest, t.down);
  int64_t row = (rest - outer * t.down) * kSide;
  ONNX_FP8_KEEP_LOOP
  for (int a = t.around.axes - 1; a >= 0; --a) {
    int64_t next = Quotient(outer, t.around.sizes[a]);
    int64_t index = outer - next * t.around.sizes[a];
    outer = next;
    src += index * t.around.from[a];
    dst += index * t.around.to[a];
  }
  int x = threadIdx.x % kSide, y = threadIdx.x / kSide;
  T values[kEach];
  for (int v = 0; v < kEach; ++v) {
    int64_t r = row + y + v * kStep;
    if (r < t.rows && column + x < t.columns) {
      values[v] = src[r * t.from_row + column + x];
    }
  }
  for (int v = 0; v < kEach; ++v) {
    int64_t r = row + y + v * kStep;
    if (r < t.rows && column + x < t.columns) {
      tile[y + v * kStep][x] = values[v];
    }
  }
  __syncthreads();
  for (int v = 0; v < kEach; ++v) {
    int64_t c = column + y + v * kStep;
    if (c < t.columns && row + x < t.rows) {
      dst[c * t.to_column + row + x] = tile[x][y + v * kStep];
    }
  }
}

// The axes that change places; false: src and dst have no rows along different
// axes, or short ones.
bool RowsToColumnsOf(const Walk& w, int side, RowsToColumns& t) {
  int columns = -1, rows = -1;
  for (int a = 0; a < w.axes; ++a) {
    if (w.sizes[a] == 1) continue;  // a run that one wide element holds
    if (w.from[a] == 1) columns = a;
    if (w.to[a] == 1) rows = a;
  }
  if (rows < 0 || columns < 0 || rows == columns ||
      std::min(w.sizes[rows], w.sizes[columns]) < kLeastSide) {
    return false;
  }
  t = {.around = {},
       .rows = w.sizes[rows],
       .columns = w.sizes[columns],
       .from_row = w.from[rows],
       .to_column = w.to[columns],
       .down = DivideUp(w.sizes[rows], side),
       .across = DivideUp(w.sizes[columns], side)};
  for (int a = 0; a < w.axes; ++a) {
    if (a == rows || a == columns) continue;
    int i = t.around.axes++;
    t.around.sizes[i] = w.sizes[a];
    t.around.from[i] = w.from[a];
    t.around.to[i] = w.to[a];
  }
  t.around.n = w.n / (t.rows * t.columns);
  return true;
}

template <typename T>
void Move(const KernelContext& ctx, const Walk& w, const T* src, T* dst) {
  RowsToColumns t;
  if (!RowsToColumnsOf(w, kSideOf<T>, t)) return Start(ctx, w, src, dst);
  Launch(RowsToColumnsKernel<T>,
         static_cast<unsigned>(t.around.n * t.down * t.across), kThreads, 0,
         QueueOf(ctx).stream(), t, src, dst);
}

}  // namespace

void CopyStrided(KernelContext& ctx, std::span<const int64_t> shape,
                 size_t width, const void* src,
                 std::span<const int64_t> src_strides, void* dst,
                 std::span<const int64_t> dst_strides) {
  Walk w = Merged(shape, src_strides, dst_strides, ctx.Where());
  if (w.n == 0) return;
  ForUnit(Vectorize(w, width, src, dst), [&]<typename T>() {
    Move(ctx, w, static_cast<const T*>(src), static_cast<T*>(dst));
  });
}

namespace {

// All loads start before the first store.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    JoinKernel(Many<Columns> many, T* dst, int64_t width) {
  int tensor = TensorOf(many, blockIdx.x);
  const Columns part = many.tensors[tensor];
  int64_t block = blockIdx.x - many.begin[tensor];
  int64_t n = part.rows * part.columns;
  int64_t at = block * kPerBlock + threadIdx.x;
  T values[kAtOnce];
  for (int v = 0; v < kAtOnce; ++v) {
    int64_t i = at + v * kThreads;
    if (i < n) values[v] = static_cast<const T*>(part.data)[i];
  }
  for (int v = 0; v < kAtOnce; ++v) {
    int64_t i = at + v * kThreads;
    if (i >= n) continue;
    int64_t row = Quotient(i, part.columns), column = i - row * part.columns;
    dst[row * width + part.to + column] = values[v];
  }
}

void CopyParts(KernelContext& ctx, std::span<const Columns> parts, size_t bytes,
               void* dst, int64_t width) {
  size_t unit = UnitOf(bytes, {dst}, {width});
  for (const Columns& part : parts) {
    unit = std::min(unit, UnitOf(bytes, {part.data}, {part.columns, part.to}));
  }
  auto count = static_cast<int64_t>(unit / bytes);
  std::vector<Columns> wide(parts.begin(), parts.end());
  for (Columns& part : wide) part.columns /= count, part.to /= count;
  auto blocks = [](const Columns& part) {
    return static_cast<unsigned>(DivideUp(part.rows * part.columns, kPerBlock));
  };
  ForMany(wide, blocks, [&](const Many<Columns>& many) {
    ForUnit(unit, [&]<typename T>() {
      Launch(JoinKernel<T>, many.blocks, kThreads, 0, QueueOf(ctx).stream(),
             many, static_cast<T*>(dst), width / count);
    });
  });
}

}  // namespace

void RegisterMovement(KernelRegistry& r) {
  Movement<CopyStrided, CopyParts>::Register(r);
}

}  // namespace onnx_fp8::cuda
