// SPDX-License-Identifier: Apache-2.0
#include "providers/cpu/strided.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "providers/cpu/dispatch.h"
#include "providers/cpu/tasks.h"
#include "providers/ops/divide_up.h"

namespace onnx_fp8 {
namespace {

// A loop nest: per axis its size and both strides.
struct Nest {
  Shape size;
  std::vector<int64_t> src, dst;

  size_t rank() const { return size.size(); }
  void Push(int64_t n, int64_t s, int64_t d) {
    size.push_back(n);
    src.push_back(s);
    dst.push_back(d);
  }
  // Removes axis i and returns it as a nest of its own.
  Nest Take(size_t i) {
    Nest axis;
    axis.Push(size[i], src[i], dst[i]);
    auto at = static_cast<std::ptrdiff_t>(i);
    size.erase(size.begin() + at);
    src.erase(src.begin() + at);
    dst.erase(dst.begin() + at);
    return axis;
  }
};

// Removes axes of size 1, and joins neighbors through which both sides step
// like one axis. At least one axis remains.
Nest Simplify(std::span<const int64_t> shape, std::span<const int64_t> src,
              std::span<const int64_t> dst) {
  Nest nest;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 1) continue;
    if (nest.rank() > 0 && nest.src.back() == src[i] * shape[i] &&
        nest.dst.back() == dst[i] * shape[i]) {
      nest.size.back() *= shape[i];
      nest.src.back() = src[i];
      nest.dst.back() = dst[i];
    } else {
      nest.Push(shape[i], src[i], dst[i]);
    }
  }
  if (nest.rank() == 0) nest.Push(1, 1, 1);
  return nest;
}

template <typename T>
void CopyRow(const T* src, int64_t ss, T* dst, int64_t ds, int64_t n) {
  if (ds == 1 && ss == 1) {
    std::memcpy(dst, src, static_cast<size_t>(n) * sizeof(T));
  } else if (ds == 1 && ss == 0) {
    std::fill_n(dst, n, *src);
  } else if (ds == 1) {
    for (int64_t i = 0; i < n; ++i) dst[i] = src[i * ss];
  } else {
    for (int64_t i = 0; i < n; ++i) dst[i * ds] = src[i * ss];
  }
}

// Threads share the elements evenly; a thread may begin or end inside a row.
template <typename T>
void CopyRows(Nest outer, const T* src, T* dst) {
  Nest row = outer.Take(outer.rank() - 1);
  int64_t n = row.size[0], ss = row.src[0], ds = row.dst[0];
  ParallelFor(NumElements(outer.size) * n, kGrain,
              [&](int64_t begin, int64_t end) {
                Odometer<2> at(outer.size, {outer.src, outer.dst}, begin / n);
                int64_t first = begin % n;
                while (begin < end) {
                  int64_t count = std::min(n - first, end - begin);
                  CopyRow(src + (at.offset(0) + first * ss), ss,
                          dst + (at.offset(1) + first * ds), ds, count);
                  begin += count;
                  first = 0;
                  at.Next();
                }
              });
}

// A register of 16 bytes.
template <typename T>
struct Vector {
  static constexpr size_t kWidth = 16 / sizeof(T);
  typedef T Type __attribute__((vector_size(16)));
};

// Interleaves the elements of both: the lower halves of a and b, or the upper
// halves.
template <bool upper, typename T, size_t... i>
T Interleave(T a, T b, std::index_sequence<i...>) {
  constexpr size_t n = sizeof...(i), first = upper ? n / 2 : 0;
  return __builtin_shufflevector(a, b, (first + i / 2 + i % 2 * n)...);
}

// One square of n x n elements; n elements fill a register. Interleaving rows i
// and i + n/2 is a perfect shuffle of all n² elements; log2(n) such shuffles
// transpose.
template <typename T>
void TransposeSquare(const T* src, int64_t ss, T* dst, int64_t ds) {
  using Register = typename Vector<T>::Type;
  constexpr size_t n = Vector<T>::kWidth;
  constexpr std::make_index_sequence<n> all;
  Register a[n], b[n];
  for (size_t i = 0; i < n; ++i) {
    std::memcpy(&a[i], src + static_cast<int64_t>(i) * ss, sizeof(Register));
  }
  for (size_t round = 1; round < n; round *= 2) {
    for (size_t i = 0; i < n / 2; ++i) {
      b[2 * i] = Interleave<false>(a[i], a[i + n / 2], all);
      b[2 * i + 1] = Interleave<true>(a[i], a[i + n / 2], all);
    }
    std::copy(b, b + n, a);
  }
  for (size_t i = 0; i < n; ++i) {
    std::memcpy(dst + static_cast<int64_t>(i) * ds, &a[i], sizeof(Register));
  }
}

// Tiles of this many elements squared fit into the first-level cache.
template <typename T>
constexpr int64_t kTile = sizeof(T) == 1   ? 128
                          : sizeof(T) == 8 ? 32
                                           : 64;

// dst[i * ds + j] = src[j * ss + i] for i < rows, j < columns, both at most
// kTile. Goes through a dense buffer: rows whose distance is a power of two
// would evict each other from the caches before they are used up.
template <typename T>
void TransposeTile(const T* src, int64_t ss, T* dst, int64_t ds, int64_t rows,
                   int64_t columns) {
  constexpr int64_t n = 16 / sizeof(T);
  alignas(64) T tile[kTile<T> * kTile<T>];
  int64_t whole_rows = rows / n * n, whole_columns = columns / n * n;
  for (int64_t j = 0; j < whole_columns; j += n) {
    for (int64_t i = 0; i < whole_rows; i += n) {
      TransposeSquare(src + (j * ss + i), ss, tile + (i * kTile<T> + j),
                      kTile<T>);
    }
  }
  for (int64_t i = 0; i < rows; ++i) {
    T* row = tile + i * kTile<T>;
    for (int64_t j = i < whole_rows ? whole_columns : 0; j < columns; ++j) {
      row[j] = src[j * ss + i];
    }
    std::memcpy(dst + i * ds, row, static_cast<size_t>(columns) * sizeof(T));
  }
}

// The innermost axis is contiguous in dst, and axis `a` in src. Copies tiles of
// the two axes, so that every cache line that is touched is used up.
template <typename T>
void CopyTransposed(Nest outer, size_t a, const T* src, T* dst) {
  constexpr int64_t tile = kTile<T>;
  Nest column = outer.Take(outer.rank() - 1);
  Nest row = outer.Take(a);
  int64_t rows = row.size[0], columns = column.size[0];
  int64_t ss = column.src[0], ds = row.dst[0];
  outer.Push(DivideUp(rows, tile), tile, tile * ds);
  outer.Push(DivideUp(columns, tile), tile * ss, tile);
  ParallelFor(NumElements(outer.size), kGrain / (tile * tile),
              [&](int64_t begin, int64_t end) {
                Odometer<2> at(outer.size, {outer.src, outer.dst}, begin);
                for (int64_t t = begin; t < end; ++t, at.Next()) {
                  auto index = at.index();
                  int64_t i = index[index.size() - 2] * tile;
                  int64_t j = index[index.size() - 1] * tile;
                  TransposeTile(src + at.offset(0), ss, dst + at.offset(1), ds,
                                std::min(tile, rows - i),
                                std::min(tile, columns - j));
                }
              });
}

template <typename T>
void Copy(Nest nest, const void* src, void* dst) {
  const T* from = static_cast<const T*>(src);
  T* to = static_cast<T*>(dst);
  if (nest.dst.back() == 1 && nest.src.back() > 1) {
    auto a = std::ranges::find(nest.src, 1);
    if (a != nest.src.end()) {
      CopyTransposed(nest, static_cast<size_t>(a - nest.src.begin()), from, to);
      return;
    }
  }
  CopyRows(nest, from, to);
}

template <typename T>
void CopyMappedRows(const std::vector<std::vector<int64_t>>& tables, const T* x,
                    T fill, T* y) {
  Shape outer;
  for (const auto& table : tables) {
    outer.push_back(static_cast<int64_t>(table.size()));
  }
  outer.pop_back();
  const std::vector<int64_t>& inner = tables.back();
  auto n = static_cast<int64_t>(inner.size());
  ParallelFor(
      NumElements(outer), RowsPerTask(n), [&](int64_t begin, int64_t end) {
        Odometer<0> at(outer, {}, begin);
        for (int64_t row = begin; row < end; ++row, at.Next()) {
          const T* from = x;
          for (size_t d = 0; d < outer.size() && from; ++d) {
            int64_t offset = tables[d][static_cast<size_t>(at.index()[d])];
            from = offset < 0 ? nullptr : from + offset;
          }
          T* to = y + row * n;
          for (int64_t i = 0; i < n; ++i) {
            int64_t offset = inner[static_cast<size_t>(i)];
            to[i] = from && offset >= 0 ? from[offset] : fill;
          }
        }
      });
}

}  // namespace

void CopyStrided(std::span<const int64_t> shape, size_t width, const void* src,
                 std::span<const int64_t> src_strides, void* dst,
                 std::span<const int64_t> dst_strides) {
  assert(shape.size() == src_strides.size() &&
         shape.size() == dst_strides.size());
  if (std::ranges::find(shape, 0) != shape.end()) return;
  Nest nest = Simplify(shape, src_strides, dst_strides);
  ForWidth(width, [&]<typename T>() { Copy<T>(nest, src, dst); });
}

void CopyMapped(const std::vector<std::vector<int64_t>>& tables, size_t width,
                const void* x, const void* fill, void* y) {
  ForWidth(width, [&]<typename T>() {
    T value;
    std::memcpy(&value, fill, sizeof(T));
    CopyMappedRows(tables, static_cast<const T*>(x), value, static_cast<T*>(y));
  });
}

void FillElements(void* dst, int64_t count, size_t width, const void* value) {
  ForWidth(width, [&]<typename T>() {
    T x;
    std::memcpy(&x, value, sizeof(T));
    T* y = static_cast<T*>(dst);
    ParallelFor(count, kGrain, [=](int64_t begin, int64_t end) {
      std::fill(y + begin, y + end, x);
    });
  });
}

}  // namespace onnx_fp8
