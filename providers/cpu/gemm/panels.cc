// SPDX-License-Identifier: Apache-2.0
//
// First the bytes are moved as they are. Then 8-bit floats and bfloat16 are
// decoded, a panel at a time: moving them is four times cheaper before that.
#include "providers/cpu/gemm/panels.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <vector>

#include "providers/cpu/math/float8_kernels.h"
#include "providers/cpu/math/narrow_floats.h"
#include "providers/ops/divide_up.h"

namespace onnx_fp8 {
namespace {

constexpr int64_t kSpare = 64;  // bytes that whole-vector stores may touch
constexpr int64_t kDepth = 32;  // whole vectors of every unit fit into it

template <typename Unit>
struct Vector {
  typedef Unit type __attribute__((vector_size(16)));
};
template <typename Unit>
using V = typename Vector<Unit>::type;
template <typename Unit>
constexpr int64_t kBytes = static_cast<int64_t>(sizeof(Unit));
template <typename Unit>
constexpr int64_t kLanes = 16 / kBytes<Unit>;

// a0 b0 a1 b1 … of the lower (upper) halves of a and b.
V<uint8_t> ZipLow(V<uint8_t> a, V<uint8_t> b) {
  return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21,
                                 6, 22, 7, 23);
}
V<uint8_t> ZipHigh(V<uint8_t> a, V<uint8_t> b) {
  return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13,
                                 29, 14, 30, 15, 31);
}
V<uint16_t> ZipLow(V<uint16_t> a, V<uint16_t> b) {
  return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
}
V<uint16_t> ZipHigh(V<uint16_t> a, V<uint16_t> b) {
  return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
}
V<uint32_t> ZipLow(V<uint32_t> a, V<uint32_t> b) {
  return __builtin_shufflevector(a, b, 0, 4, 1, 5);
}
V<uint32_t> ZipHigh(V<uint32_t> a, V<uint32_t> b) {
  return __builtin_shufflevector(a, b, 2, 6, 3, 7);
}

template <typename Unit>
V<Unit> Load(const char* from) {
  V<Unit> v;
  std::memcpy(&v, from, sizeof(v));
  return v;
}
// The first `bytes` bytes of a vector. A copy of 9 to 15 bytes to a vector in
// memory would make its reader wait for two writes.
template <typename Unit, size_t bytes>
V<Unit> LoadFirst(const char* from) {
  if constexpr (bytes <= 8 || bytes == 16) {
    V<Unit> v = {};
    std::memcpy(&v, from, bytes);
    return v;
  } else {
    uint64_t low, high;
    std::memcpy(&low, from, 8);
    std::memcpy(&high, from + bytes - 8, 8);
    typedef uint64_t Halves __attribute__((vector_size(16)));
    return reinterpret_cast<V<Unit>>(Halves{low, high >> (16 - bytes) * 8});
  }
}

template <typename Unit>
void Store(V<Unit> v, Unit* to) {
  std::memcpy(to, &v, sizeof(v));
}

// Transposes a square of kLanes rows.
template <typename Unit>
void Transpose(V<Unit>* rows) {
  constexpr int64_t n = kLanes<Unit>;
  V<Unit> next[n];
  for (int64_t round = 1; round < n; round *= 2) {
    for (int64_t i = 0; i < n / 2; ++i) {
      next[2 * i] = ZipLow(rows[i], rows[i + n / 2]);
      next[2 * i + 1] = ZipHigh(rows[i], rows[i + n / 2]);
    }
    for (int64_t i = 0; i < n; ++i) rows[i] = next[i];
  }
}

// Below, row i of the source begins at from + i · stride, in bytes: a unit may
// be a pair of elements, and rows need not begin at a whole unit.

// to[k · width + w] = element k of row w. Stores whole vectors: the last vector
// of one k may reach into the next k's place, which is written later.
template <int64_t kWidth, typename Unit>
void MoveColumns(const char* from, int64_t stride, int64_t depth, Unit* to) {
  constexpr int64_t n = kLanes<Unit>;
  for (int64_t k = 0; k < depth; k += n) {
    for (int64_t at = 0; at < kWidth; at += n) {
      int64_t w = std::max<int64_t>(0, std::min(at, kWidth - n));
      V<Unit> rows[n];
      for (int64_t i = 0; i < n; ++i) {
        const char* row = from + std::min(w + i, kWidth - 1) * stride;
        rows[i] = Load<Unit>(row + k * kBytes<Unit>);
      }
      Transpose<Unit>(rows);
      for (int64_t i = 0; i < n; ++i) {
        Store<Unit>(rows[i], to + (k + i) * kWidth + w);
      }
    }
  }
}

// to[k · width + w] = element w of row k.
template <int64_t kWidth, typename Unit>
void MoveRows(const char* from, int64_t stride, int64_t depth, Unit* to) {
  constexpr int64_t n = kLanes<Unit>;
  for (int64_t k = 0; k < depth; ++k) {
    Unit* row = to + k * kWidth;
    if constexpr (kWidth % n == 0) {
      for (int64_t w = 0; w < kWidth; w += n) {
        Store<Unit>(Load<Unit>(from + k * stride + w * kBytes<Unit>), row + w);
      }
    } else {
      std::memcpy(row, from + k * stride, kWidth * sizeof(Unit));
    }
  }
}

// to[k/2 · 2 width + 2 w + k%2] = element w of row k. Only bytes, which are
// decoded from a buffer, may be written behind the last row: the place behind a
// panel may hold the next one already.
template <int64_t kWidth, typename Unit>
void MoveRowPairs(const char* from, int64_t stride, int64_t depth, Unit* to) {
  constexpr int64_t n = kLanes<Unit>;
  constexpr size_t kRead = std::min(n, kWidth) * sizeof(Unit);
  static_assert(sizeof(Unit) == 1 || kWidth >= n);
  for (int64_t k = 0; k < depth; k += 2) {
    const char* row = from + k * stride;
    for (int64_t at = 0; at < kWidth; at += n) {
      int64_t w = std::max<int64_t>(0, std::min(at, kWidth - n));
      auto even = LoadFirst<Unit, kRead>(row + w * kBytes<Unit>);
      auto odd = LoadFirst<Unit, kRead>(row + stride + w * kBytes<Unit>);
      Unit* pairs = to + k * kWidth + 2 * w;
      Store<Unit>(ZipLow(even, odd), pairs);
      if (kWidth > n / 2) Store<Unit>(ZipHigh(even, odd), pairs + n);
    }
  }
}

// to[k/32 · 32 width + 32 w + k%32] = element k of row w.
template <int64_t kWidth, typename Unit>
void MoveRowTiles(const char* from, int64_t stride, int64_t depth, Unit* to) {
  for (int64_t k = 0; k < depth; k += 32) {
    for (int64_t w = 0; w < kWidth; ++w) {
      std::memcpy(to + k * kWidth + w * 32,
                  from + w * stride + k * kBytes<Unit>, 32 * sizeof(Unit));
    }
  }
}

// to[k/32 · 32 width + 32 w + k%32] = element w of row k.
template <int64_t kWidth, typename Unit>
void MoveColumnTiles(const char* from, int64_t stride, int64_t depth,
                     Unit* to) {
  constexpr int64_t n = kLanes<Unit>;
  for (int64_t k = 0; k < depth; k += n) {
    for (int64_t w = 0; w < kWidth; w += n) {
      V<Unit> rows[n];
      for (int64_t i = 0; i < n; ++i) {
        rows[i] = Load<Unit>(from + (k + i) * stride + w * kBytes<Unit>);
      }
      Transpose<Unit>(rows);
      for (int64_t i = 0; i < n; ++i) {
        Store<Unit>(rows[i], to + k / 32 * 32 * kWidth + (w + i) * 32 + k % 32);
      }
    }
  }
}

template <typename Unit>
struct PairOf;
template <>
struct PairOf<uint8_t> {
  using type = uint16_t;
};
template <>
struct PairOf<uint16_t> {
  using type = uint32_t;
};

// Packs the first `depth` k's, a multiple of kDepth, of a panel of kWidth w's.
template <int64_t kWidth, typename Unit>
void MoveWhole(PanelLayout layout, const PanelSource& source, const char* from,
               int64_t depth, Unit* to) {
  int64_t stride = source.ld * kBytes<Unit>;
  if (layout == PanelLayout::kFloat) {
    auto move =
        source.k_major ? MoveRows<kWidth, Unit> : MoveColumns<kWidth, Unit>;
    return move(from, stride, depth, to);
  }
  if constexpr (sizeof(Unit) < 4) {
    if (layout == PanelLayout::kRowTiles) {
      if constexpr (kWidth == 16) {
        auto move = source.k_major ? MoveColumnTiles<kWidth, Unit>
                                   : MoveRowTiles<kWidth, Unit>;
        return move(from, stride, depth, to);
      }
    } else if (source.k_major) {
      if constexpr (kWidth >= 14) {
        return MoveRowPairs<kWidth>(from, stride, depth, to);
      }
    } else {
      using Pair = typename PairOf<Unit>::type;
      return MoveColumns<kWidth>(from, stride, depth / 2,
                                 reinterpret_cast<Pair*>(to));
    }
  }
  assert(false);
}

template <typename Unit>
void MoveWhole(PanelLayout layout, int64_t width, const PanelSource& source,
               const char* from, int64_t depth, Unit* to) {
  switch (width) {
    case 6:
      return MoveWhole<6>(layout, source, from, depth, to);
    case 8:
      return MoveWhole<8>(layout, source, from, depth, to);
    case 14:
      return MoveWhole<14>(layout, source, from, depth, to);
    case 16:
      return MoveWhole<16>(layout, source, from, depth, to);
    case 32:
      return MoveWhole<32>(layout, source, from, depth, to);
    default:
      assert(false);
  }
}

int64_t IndexIn(PanelLayout layout, int64_t width, int64_t w, int64_t k) {
  if (layout == PanelLayout::kFloat) return k * width + w;
  int64_t unit = layout == PanelLayout::kRowTiles ? 32 : 2;
  return k / unit * unit * width + w * unit + k % unit;
}

// Fills k's from `first` to `padded`, and all missing w's, one by one.
template <typename Unit>
void MoveRest(PanelLayout layout, int64_t width, const PanelSource& source,
              const char* from, int64_t count, int64_t first, int64_t depth,
              int64_t padded, Unit* to) {
  int64_t step_w = (source.k_major ? 1 : source.ld) * kBytes<Unit>;
  int64_t step_k = (source.k_major ? source.ld : 1) * kBytes<Unit>;
  std::fill(to + first * width, to + padded * width, Unit{0});
  for (int64_t k = first; k < depth; ++k) {
    for (int64_t w = 0; w < count; ++w) {
      std::memcpy(to + IndexIn(layout, width, w, k),
                  from + w * step_w + k * step_k, sizeof(Unit));
    }
  }
}

template <typename Unit>
void MovePanel(PanelLayout layout, int64_t width, const PanelSource& source,
               const char* from, int64_t count, int64_t depth, void* to) {
  auto out = static_cast<Unit*>(to);
  int64_t whole = count == width ? depth / kDepth * kDepth : 0;
  int64_t padded = RoundUp(depth, DepthUnit(layout));
  if (whole > 0) MoveWhole<Unit>(layout, width, source, from, whole, out);
  if (whole < padded) {
    MoveRest<Unit>(layout, width, source, from, count, whole, depth, padded,
                   out);
  }
}

using Decode = void (*)(const void* codes, void* values, int64_t n);

// Decodes codes to the elements of a panel; null if they are the same.
Decode DecoderOf(PanelLayout layout, DType dtype) {
  if (layout == PanelLayout::kFloat) {
    switch (dtype) {
      case DType::kE4M3:
        return [](const void* codes, void* values, int64_t n) {
          KernelsFor(ActiveIsa())
              .decode_e4m3(static_cast<const uint8_t*>(codes),
                           static_cast<float*>(values), n);
        };
      case DType::kE5M2:
        return [](const void* codes, void* values, int64_t n) {
          KernelsFor(ActiveIsa())
              .decode_e5m2(static_cast<const uint8_t*>(codes),
                           static_cast<float*>(values), n);
        };
      case DType::kBFloat16:
        return [](const void* codes, void* values, int64_t n) {
          WidenFloats(DType::kBFloat16, codes, static_cast<float*>(values), n);
        };
      case DType::kFloat16:
        return [](const void* codes, void* values, int64_t n) {
          WidenFloats(DType::kFloat16, codes, static_cast<float*>(values), n);
        };
      default:
        return nullptr;
    }
  }
  switch (dtype) {
    case DType::kE4M3:
      return [](const void* codes, void* values, int64_t n) {
        KernelsFor(ActiveIsa())
            .widen_e4m3(static_cast<const uint8_t*>(codes),
                        static_cast<uint16_t*>(values), n);
      };
    case DType::kE5M2:
      return [](const void* codes, void* values, int64_t n) {
        KernelsFor(ActiveIsa())
            .widen_e5m2(static_cast<const uint8_t*>(codes),
                        static_cast<uint16_t*>(values), n);
      };
    default:
      return nullptr;
  }
}

}  // namespace

size_t PanelBytes(PanelLayout layout, int64_t width, int64_t count,
                  int64_t depth) {
  return static_cast<size_t>(RoundUp(count, width) *
                             RoundUp(depth, DepthUnit(layout))) *
             PanelElementBytes(layout) +
         kSpare;
}

void PackPanels(PanelLayout layout, int64_t width, const PanelSource& source,
                int64_t count, int64_t depth, void* to) {
  // Rows of several panels lie in the same cache lines if k runs across rows.
  constexpr int64_t kRows = 64;
  int64_t step = source.k_major ? kRows : std::max<int64_t>(depth, 1);
  auto size = static_cast<int64_t>(ByteSize(source.dtype));
  auto element = static_cast<int64_t>(PanelElementBytes(layout));
  int64_t panel = width * RoundUp(depth, DepthUnit(layout)) * element;
  Decode decode = DecoderOf(layout, source.dtype);
  thread_local std::vector<char> codes;
  auto move = size == 1   ? MovePanel<uint8_t>
              : size == 2 ? MovePanel<uint16_t>
                          : MovePanel<uint32_t>;
  auto from = static_cast<const char*>(source.data);
  for (int64_t k = 0; k < depth; k += step) {
    int64_t part = std::min(step, depth - k);
    int64_t elements = width * RoundUp(part, DepthUnit(layout));
    if (decode) codes.resize(static_cast<size_t>(elements * size + kSpare));
    char* out = static_cast<char*>(to) + k * width * element;
    for (int64_t w = 0; w < count; w += width, out += panel) {
      int64_t at = source.k_major ? k * source.ld + w : w * source.ld + k;
      move(layout, width, source, from + at * size, std::min(width, count - w),
           part, decode ? codes.data() : out);
      if (decode) decode(codes.data(), out, elements);
    }
  }
}

}  // namespace onnx_fp8
