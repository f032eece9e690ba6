// SPDX-License-Identifier: Apache-2.0
//
// Rotary and RotaryGrad of graph/schemas/rotary.cc, with operations in the
// order of their bodies.
#include "providers/cpu/amax_meter.h"
#include "providers/cpu/dispatch.h"
#include "providers/cpu/math/ivdep.h"
#include "providers/cpu/math/on_isa.h"
#include "providers/cpu/stored.h"
#include "providers/cpu/tasks.h"
#include "providers/kernel.h"
#include "providers/ops/arguments.h"

namespace onnx_fp8 {
namespace {

// One head's row of two halves.
template <bool kGrad, typename T>
inline void Turn(const T* x, const T* cos, const T* sin, T* y, int64_t half) {
  ONNX_FP8_IVDEP  // y is x or does not overlap it
  for (int64_t i = 0; i < half; ++i) {
    T x1 = x[i], x2 = x[half + i];
    T s1 = kGrad ? sin[half + i] : -sin[i];
    T s2 = kGrad ? -sin[i] : sin[half + i];
    y[i] = x1 * cos[i] + x2 * s1;
    y[half + i] = x2 * cos[half + i] + x1 * s2;
  }
}

template <bool kGrad>
void Rotary(KernelContext& ctx) {
  const Tensor &x = Operand(ctx, 0), &cos = Operand(ctx, 1),
               &sin = Operand(ctx, 2);
  int64_t heads = ctx.Int("heads", 0);
  DType dtype = ComputedAs(x);
  bool fits = heads > 0 && x.rank() == 3 && x.dim(2) % (2 * heads) == 0 &&
              cos.rank() == 3 && sin.shape() == cos.shape() &&
              (cos.dim(0) == 1 || cos.dim(0) == x.dim(0)) &&
              cos.dim(1) == x.dim(1) && cos.dim(2) == x.dim(2) / heads &&
              cos.dtype() == dtype && sin.dtype() == dtype;
  Check(fits, "[", ctx.Where(),
        "] expected x (B,T,H·D), cos and sin (B or 1,T,D), got ",
        ToString(x.shape()), ToString(cos.shape()), ToString(sin.shape()),
        " and ", heads, " heads");
  Tensor y = StoredResult(ctx, 0, dtype, x.shape());
  int64_t width = x.dim(2), depth = width / heads, rows = x.dim(0) * x.dim(1);
  int64_t angles = cos.dim(0) * cos.dim(1);  // rows of cos, which repeat
  DispatchFloat(dtype, ctx.Where(), [&]<typename T>() {
    const T *cosines = cos.data<T>(), *sines = sin.data<T>();
    StoredIn<T> operand(x);
    StoredOut<T> result(y);
    AmaxMeter meter(ctx, 0);
    ParallelFor(rows, RowsPerTask(width), [&](int64_t begin, int64_t end) {
      AmaxMeter::Part part(meter);
      T* wide = WideRows<T>(2, width);
      for (int64_t row = begin; row < end; ++row) {
        int64_t angle = row % angles * depth, first = row * width;
        const T* from = operand.Read(first, width, wide);
        T* to = result.At(first, wide + width);
        OnBestIsa([=] {
          for (int64_t h = 0; h < width; h += depth) {
            Turn<kGrad>(from + h, cosines + angle, sines + angle, to + h,
                        depth / 2);
          }
        });
        part.Add(to, width);
        result.Write(first, width, to);
      }
    });
  });
}

}  // namespace

void RegisterRotary(KernelRegistry& r) {
  const KernelTraits traits = StoredTraits(1);
  r.Add("Rotary", Widened<Rotary<false>>, traits, kDomain);
  r.Add("RotaryGrad", Widened<Rotary<true>>, traits, kDomain);
}

}  // namespace onnx_fp8
