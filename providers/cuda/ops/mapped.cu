// SPDX-License-Identifier: Apache-2.0
#include "providers/cuda/core/broadcast.h"
#include "providers/cuda/core/uploads.h"
#include "providers/cuda/ops/mapped.h"
#include "providers/ops/for_width.h"

namespace onnx_fp8::cuda {
namespace {

struct Map {
  int axes;
  int64_t n;
  int64_t sizes[kMostAxes];
  const int64_t* tables;  // one after the other, the innermost axis first
};

template <typename T>
__global__ void __launch_bounds__(kThreads)
    CopyMappedKernel(Map m, const T* x, const T* fill, T* y) {
  int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= m.n) return;
  const int64_t* table = m.tables;
  int64_t offset = 0, rest = at;
  bool inside = true;
  for (int a = kMostAxes - 1; a >= 0; --a) {  // stays in registers
    if (a >= m.axes) continue;
    int64_t entry = table[rest % m.sizes[a]];
    rest /= m.sizes[a];
    table += m.sizes[a];
    inside = inside && entry >= 0;
    offset += entry;
  }
  y[at] = inside ? x[offset] : fill ? *fill : T{0};
}

}  // namespace

void CopyMapped(const KernelContext& ctx,
                const std::vector<std::vector<int64_t>>& tables, size_t width,
                const void* x, const void* fill, void* y) {
  Check(tables.size() <= kMostAxes, "[", ctx.Where(), "] expected at most ",
        kMostAxes, " axes on a GPU, got ", tables.size());
  Map m = {static_cast<int>(tables.size()), 1, {}, nullptr};
  std::vector<int64_t> all;
  for (size_t a = tables.size(); a-- > 0;) {
    m.sizes[a] = static_cast<int64_t>(tables[a].size());
    m.n *= m.sizes[a];
    all.insert(all.end(), tables[a].begin(), tables[a].end());
  }
  m.tables = Uploaded(ctx, std::span<const int64_t>(all));
  ForWidth(width, [&]<typename T>() {
    Launch(CopyMappedKernel<T>, BlocksFor(m.n), kThreads, 0,
           QueueOf(ctx).stream(), m, static_cast<const T*>(x),
           static_cast<const T*>(fill), static_cast<T*>(y));
  });
}

}  // namespace onnx_fp8::cuda
