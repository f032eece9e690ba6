// SPDX-License-Identifier: Apache-2.0
//
// Resize of floats in all modes, and of all dtypes by nearest elements. Sums
// have the CPU's order: results are its, bit by bit. Traffic: mapped.h's for
// nearest elements. Else, for each axis that changes, each element is read as
// often as positions take it, mostly from a cache, and written once.
#include <algorithm>
#include <utility>

#include "providers/cuda/core/broadcast.h"
#include "providers/cuda/core/uploads.h"
#include "providers/cuda/ops/mapped.h"
#include "providers/kernel.h"
#include "providers/ops/arguments.h"
#include "providers/ops/resize.h"

namespace onnx_fp8::cuda {
namespace {

// x (outer, from, inner) → y (outer, to, inner)
struct Interpolation {
  const float* x;
  float* y;
  int64_t n, from, to, inner;
  // The taps of position i are first[i] … first[i + 1] - 1.
  const int64_t *first, *index;
  const float* weight;
  float extrapolated;
};

__global__ void __launch_bounds__(kThreads) InterpolateKernel(Interpolation p) {
  int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= p.n) return;
  int64_t row = at / p.inner, column = at % p.inner, position = row % p.to;
  const float* x = p.x + row / p.to * p.from * p.inner + column;
  int64_t begin = p.first[position], end = p.first[position + 1];
  float sum = begin == end ? p.extrapolated : 0.0f;
  for (int64_t k = begin; k < end; ++k) {
    sum += p.weight[k] * x[p.index[k] * p.inner];
  }
  p.y[at] = sum;
}

void AddTable(const KernelContext& ctx, const ResizeTable& table,
              Interpolation* p) {
  std::vector<int64_t> first = {0}, index;
  std::vector<float> weight;
  for (const Taps& taps : table.taps) {
    index.insert(index.end(), taps.index.begin(), taps.index.end());
    for (double w : taps.weight) weight.push_back(static_cast<float>(w));
    first.push_back(static_cast<int64_t>(index.size()));
  }
  p->first = Uploaded(ctx, std::span<const int64_t>(first));
  p->index = Uploaded(ctx, std::span<const int64_t>(index));
  p->weight = Uploaded(ctx, std::span<const float>(weight));
}

// The axes that are interpolated, in their order: the last one first.
std::vector<size_t> AxesOf(const ResizeLayout& layout) {
  std::vector<size_t> axes;
  for (size_t d = layout.tables.size(); d-- > 0;) {
    if (layout.tables[d].changes) axes.push_back(d);
  }
  return axes;
}

// What lies between two axes is in the workspace, which has one place for it or
// two.
struct Between {
  int64_t places, elements;  // of each place
  size_t bytes() const {
    return static_cast<size_t>(places * elements) * sizeof(float);
  }
};

Between BetweenAxes(const ResizeLayout& layout, Shape shape) {
  std::vector<size_t> axes = AxesOf(layout);
  Between between = {};
  for (size_t i = 0; i + 1 < axes.size(); ++i) {
    shape[axes[i]] = layout.shape[axes[i]];
    between.elements = std::max(between.elements, NumElements(shape));
    between.places = std::min<int64_t>(between.places + 1, 2);
  }
  return between;
}

void Interpolate(const KernelContext& ctx, const ResizeLayout& layout,
                 const Tensor& x, Tensor& y) {
  std::vector<size_t> axes = AxesOf(layout);
  Between between = BetweenAxes(layout, x.shape());
  Queue& queue = QueueOf(ctx);
  auto* next = static_cast<float*>(ctx.Workspace(between.bytes()));
  float* other = next + (between.places > 1 ? between.elements : 0);
  Shape shape = x.shape();
  Interpolation p = {};
  p.x = static_cast<const float*>(x.raw());
  p.extrapolated = ctx.Float("extrapolation_value", 0);
  for (size_t d : axes) {
    p.from = shape[d];
    shape[d] = p.to = layout.shape[d];
    p.n = NumElements(shape);
    p.inner = NumElements(std::span(shape).subspan(d + 1));
    p.y = d == axes.back() ? static_cast<float*>(y.raw()) : next;
    AddTable(ctx, layout.tables[d], &p);
    Launch(InterpolateKernel, BlocksFor(p.n), kThreads, 0, queue.stream(), p);
    p.x = p.y;
    std::swap(next, other);
  }
}

size_t ResizeWorkspace(KernelContext& ctx) {
  const Tensor& x = Operand(ctx, 0);
  if (ctx.Out(0).size() == 0) return 0;
  ResizeLayout layout = ResizeLayoutOf(ctx);
  return layout.nearest ? 0 : BetweenAxes(layout, x.shape()).bytes();
}

void Resize(KernelContext& ctx) {
  const Tensor& x = Operand(ctx, 0);
  Tensor& y = ctx.Out(0, x.dtype(), ResizedShape(ctx));
  if (y.size() == 0) return;
  ResizeLayout layout = ResizeLayoutOf(ctx);
  if (layout.nearest) {
    Tensor fill = ConvertTo(Tensor::Scalar(ctx.Float("extrapolation_value", 0)),
                            x.dtype());
    const void* ours = Uploaded(
        ctx, std::span(static_cast<const char*>(fill.raw()), fill.bytes()));
    return CopyMapped(ctx, NearestTables(layout, x.shape()),
                      ByteSize(x.dtype()), x.raw(), ours, y.raw());
  }
  Check(x.dtype() == DType::kFloat, "[", ctx.Where(),
        "] expected float on the GPU, got ", Name(x.dtype()));
  if (x.shape() == y.shape() &&
      std::ranges::none_of(layout.tables, &ResizeTable::changes)) {
    ONNX_FP8_CUDA(cudaMemcpyAsync(y.raw(), x.raw(), x.bytes(),
                                  cudaMemcpyDeviceToDevice,
                                  QueueOf(ctx).stream()));
    return;
  }
  Interpolate(ctx, layout, x, y);
}

}  // namespace

void RegisterResize(KernelRegistry& r) {
  r.Add("Resize", Resize, {.workspace = ResizeWorkspace});
}

}  // namespace onnx_fp8::cuda
