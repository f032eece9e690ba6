// SPDX-License-Identifier: Apache-2.0
#include "providers/cpu/math/float8_kernels.h"

#include <algorithm>
#include <mutex>

#include "base/check.h"
#include "base/parallel.h"
#include "providers/cpu/math/float8_kernels.inc"
#include "providers/cpu/math/narrow_floats.h"

namespace onnx_fp8 {
namespace {

// About 10 µs of work: a parallel region costs a few.
constexpr int64_t kCodesOfTask = 32768;

}  // namespace

extern const Float8Kernels kFloat8Portable = kLoops;

const Float8Kernels& KernelsFor(Isa isa) {
  if constexpr (kHasX86Isas) {
    if (isa >= Isa::kAvx512) return kFloat8Avx512;
    if (isa == Isa::kAvx2) return kFloat8Avx2;
  }
  return kFloat8Portable;
}

decltype(Float8Kernels::encode_e4m3) EncoderOf(DType dtype) {
  Check(IsFloat8(dtype), "expected an 8-bit float format, got ", Name(dtype));
  const Float8Kernels& kernels = KernelsFor(ActiveIsa());
  return dtype == DType::kE4M3 ? kernels.encode_e4m3 : kernels.encode_e5m2;
}

void DecodeTo(DType dtype, const void* q, float* x, int64_t n) {
  const Float8Kernels& kernels = KernelsFor(ActiveIsa());
  auto bytes = static_cast<const uint8_t*>(q);
  ParallelFor(n, kCodesOfTask, [&](int64_t begin, int64_t end) {
    int64_t count = end - begin;
    switch (dtype) {
      case DType::kE4M3:
        kernels.decode_e4m3(bytes + begin, x + begin, count);
        break;
      case DType::kE5M2:
        kernels.decode_e5m2(bytes + begin, x + begin, count);
        break;
      default:
        Fail("expected an 8-bit float, got ", Name(dtype));
    }
  });
}

namespace {

// Calls fn(block, at, count, part) for blocks of x that stay in a first-level
// cache. Returns all parts together.
template <typename Fn>
Amax OverBlocks(const StoredFloats& x, Fn fn) {
  constexpr int64_t kCached = 4096;
  Amax all;
  std::mutex mutex;  // a maximum has no order
  ParallelFor(x.n, kCodesOfTask, [&](int64_t begin, int64_t end) {
    Amax part;
    float wide[kCached];
    for (int64_t at = begin; at < end; at += kCached) {
      int64_t count = std::min(kCached, end - at);
      fn(ReadFloats(x.dtype, x.data, at, count, wide), at, count, part);
    }
    std::lock_guard<std::mutex> lock(mutex);
    all.Add(part);
  });
  return all;
}

}  // namespace

void EncodeTo(DType dtype, const StoredFloats& x, float factor, void* q) {
  auto encode = EncoderOf(dtype);
  auto bytes = static_cast<uint8_t*>(q);
  OverBlocks(x, [&](const float* block, int64_t at, int64_t n, Amax&) {
    encode(block, factor, bytes + at, n);
  });
}

Amax AmaxOf(const StoredFloats& x) {
  auto amax_of = KernelsFor(ActiveIsa()).amax;
  return OverBlocks(x, [&](const float* block, int64_t, int64_t n, Amax& part) {
    part.Add(amax_of(block, n));
  });
}

Amax EncodeAndMeasure(DType dtype, const StoredFloats& x, float factor,
                      void* q) {
  auto encode = EncoderOf(dtype);
  auto amax_of = KernelsFor(ActiveIsa()).amax;
  auto bytes = static_cast<uint8_t*>(q);
  return OverBlocks(x,
                    [&](const float* block, int64_t at, int64_t n, Amax& part) {
                      part.Add(amax_of(block, n));
                      encode(block, factor, bytes + at, n);
                    });
}

}  // namespace onnx_fp8
