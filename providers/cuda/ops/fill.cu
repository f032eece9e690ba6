// SPDX-License-Identifier: Apache-2.0
//
// Traffic: each element is written once.
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "providers/cuda/core/elementwise.h"
#include "providers/cuda/ops/fill.h"

namespace onnx_fp8::cuda {
namespace {

struct Parcel {
  uint32_t words[kThreads];
};

__global__ void __launch_bounds__(kThreads)
    UnpackKernel(uint8_t* y, int64_t bytes, Parcel p) {
  int64_t at = static_cast<int64_t>(threadIdx.x) * 4;
  uint32_t word = p.words[threadIdx.x];
  if (at + 4 <= bytes) {
    *reinterpret_cast<uint32_t*>(y + at) = word;
    return;
  }
  for (int i = 0; i < 3; ++i) {
    if (at + i < bytes) y[at + i] = static_cast<uint8_t>(word >> (8 * i));
  }
}

// One value, repeated. Its width divides 16 bytes.
struct Pattern {
  uint32_t words[4];
};

// A thread writes 16 bytes; the last one writes what is left.
__global__ void __launch_bounds__(kThreads)
    FillKernel(uint8_t* y, int64_t bytes, Pattern p) {
  int64_t at = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * 16;
  if (at + 16 <= bytes) {
    *reinterpret_cast<uint4*>(y + at) =
        make_uint4(p.words[0], p.words[1], p.words[2], p.words[3]);
    return;
  }
  for (int i = 0; i < 16; ++i) {
    if (at + i < bytes) {
      y[at + i] = static_cast<uint8_t>(p.words[i / 4] >> (i % 4 * 8));
    }
  }
}

// i · delta may overflow T even if start + i · delta does not.
template <typename T, typename Wide>
__global__ void __launch_bounds__(kThreads)
    RangeKernel(T* y, int64_t n, Wide start, Wide delta) {
  int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < n) y[i] = static_cast<T>(start + static_cast<Wide>(i) * delta);
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    EveryKernel(T* first, int64_t n, int64_t step, T value) {
  int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < n) first[i * step] = value;
}

template <typename T>
void StartEvery(const KernelContext& ctx, const void* from, int64_t first,
                int64_t n, int64_t step, void* y) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  Launch(EveryKernel<T>, static_cast<unsigned>(DivideUp(n, kThreads)), kThreads,
         0, QueueOf(ctx).stream(), static_cast<T*>(y) + first, n, step, value);
}

}  // namespace

void WriteBytes(const KernelContext& ctx, const void* from, size_t bytes,
                void* y) {
  for (size_t at = 0; at < bytes; at += sizeof(Parcel)) {
    Parcel p = {};
    size_t count = std::min(bytes - at, sizeof(Parcel));
    std::memcpy(p.words, static_cast<const uint8_t*>(from) + at, count);
    Launch(UnpackKernel, 1, kThreads, 0, QueueOf(ctx).stream(),
           static_cast<uint8_t*>(y) + at, static_cast<int64_t>(count), p);
  }
}

void FillWith(const KernelContext& ctx, const void* value, size_t width,
              int64_t bytes, void* y) {
  if (bytes == 0) return;
  Pattern p;
  auto* to = reinterpret_cast<uint8_t*>(p.words);
  for (size_t at = 0; at < sizeof(p); at += width) {
    std::memcpy(to + at, value, width);
  }
  Launch(FillKernel, static_cast<unsigned>(DivideUp(bytes, 16 * kThreads)),
         kThreads, 0, QueueOf(ctx).stream(), static_cast<uint8_t*>(y), bytes,
         p);
}

template <typename T>
void FillRange(const KernelContext& ctx, T start, T delta, int64_t n, T* y) {
  if (n == 0) return;
  using Wide = std::conditional_t<std::is_integral_v<T>, uint64_t, T>;
  Launch(RangeKernel<T, Wide>, static_cast<unsigned>(DivideUp(n, kThreads)),
         kThreads, 0, QueueOf(ctx).stream(), y, n, static_cast<Wide>(start),
         static_cast<Wide>(delta));
}

template void FillRange(const KernelContext&, float, float, int64_t, float*);
template void FillRange(const KernelContext&, double, double, int64_t, double*);
template void FillRange(const KernelContext&, int16_t, int16_t, int64_t,
                        int16_t*);
template void FillRange(const KernelContext&, int32_t, int32_t, int64_t,
                        int32_t*);
template void FillRange(const KernelContext&, int64_t, int64_t, int64_t,
                        int64_t*);

void FillEvery(const KernelContext& ctx, const void* value, size_t width,
               int64_t first, int64_t n, int64_t step, void* y) {
  if (n == 0) return;
  switch (width) {
    case 1:
      return StartEvery<uint8_t>(ctx, value, first, n, step, y);
    case 2:
      return StartEvery<uint16_t>(ctx, value, first, n, step, y);
    case 4:
      return StartEvery<uint32_t>(ctx, value, first, n, step, y);
    default:
      return StartEvery<uint64_t>(ctx, value, first, n, step, y);
  }
}

}  // namespace onnx_fp8::cuda
