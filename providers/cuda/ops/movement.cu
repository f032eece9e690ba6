// SPDX-License-Identifier: Apache-2.0
//
// The loops behind all ops that only move elements. Traffic: each element of
// the result is read once and written once.
#include "providers/cuda/core/device.h"
#include "providers/cuda/core/elementwise.h"
#include "providers/cuda/core/many.h"
#include "providers/cuda/ops/strided.h"
#include "providers/cuda/register.h"
#include "providers/for_width.h"
#include "providers/movement.h"

namespace onnx_fp8::cuda {
namespace {

constexpr int kMostAxes = 8;

struct Walk {
  int axes;
  int64_t n;
  int64_t sizes[kMostAxes], from[kMostAxes], to[kMostAxes];
};

template <typename T>
__global__ void __launch_bounds__(kThreads)
    CopyKernel(Walk w, const T* src, T* dst) {
  int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= w.n) return;
  int64_t from = 0, to = 0, rest = i;
  for (int a = w.axes - 1; a >= 0; --a) {
    int64_t index = rest % w.sizes[a];
    rest /= w.sizes[a];
    from += index * w.from[a];
    to += index * w.to[a];
  }
  dst[to] = src[from];
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

template <typename T>
void Start(const KernelContext& ctx, const Walk& w, const void* src,
           void* dst) {
  Launch(CopyKernel<T>, static_cast<unsigned>(DivideUp(w.n, kThreads)),
         kThreads, 0, QueueOf(ctx).stream(), w, static_cast<const T*>(src),
         static_cast<T*>(dst));
}

}  // namespace

void CopyStrided(KernelContext& ctx, std::span<const int64_t> shape,
                 size_t width, const void* src,
                 std::span<const int64_t> src_strides, void* dst,
                 std::span<const int64_t> dst_strides) {
  Walk w = Merged(shape, src_strides, dst_strides, ctx.Where());
  if (w.n == 0) return;
  switch (width) {
    case 1:
      return Start<uint8_t>(ctx, w, src, dst);
    case 2:
      return Start<uint16_t>(ctx, w, src, dst);
    case 4:
      return Start<uint32_t>(ctx, w, src, dst);
    default:
      return Start<uint64_t>(ctx, w, src, dst);
  }
}

namespace {

// An element of a part per thread.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    JoinKernel(Many<Columns> many, T* dst, int64_t width) {
  int tensor = TensorOf(many, blockIdx.x);
  const Columns part = many.tensors[tensor];
  int64_t block = blockIdx.x - many.begin[tensor];
  int64_t at = block * kThreads + threadIdx.x;
  if (at >= part.rows * part.columns) return;
  int64_t row = at / part.columns, column = at % part.columns;
  dst[row * width + part.to + column] = static_cast<const T*>(part.data)[at];
}

void CopyParts(KernelContext& ctx, std::span<const Columns> parts, size_t bytes,
               void* dst, int64_t width) {
  auto blocks = [](const Columns& part) {
    return static_cast<unsigned>(DivideUp(part.rows * part.columns, kThreads));
  };
  ForMany(parts, blocks, [&](const Many<Columns>& many) {
    ForWidth(bytes, [&]<typename T>() {
      Launch(JoinKernel<T>, many.blocks, kThreads, 0, QueueOf(ctx).stream(),
             many, static_cast<T*>(dst), width);
    });
  });
}

}  // namespace

void RegisterMovement(KernelRegistry& r) {
  Movement<CopyStrided, CopyParts>::Register(r);
}

}  // namespace onnx_fp8::cuda
