// SPDX-License-Identifier: Apache-2.0
//
// Rotary and RotaryGrad of graph/schemas/rotary.cc. A thread turns elements i
// of both halves of the rows of some heads. Traffic: x is read once, y is
// written once; the angles of a row are read for every fourth head, for every
// eighth if x and y are kept as bfloat16, mostly from the cache.
#include <type_traits>

#include "providers/cuda/core/broadcast.h"
#include "providers/cuda/core/rows.h"
#include "providers/kernel.h"
#include "providers/ops/arguments.h"

namespace onnx_fp8::cuda {
namespace {

struct Turning {
  FloatsIn x, cos, sin;
  FloatsOut y;
  DeviceAmax* amax;
  int64_t n;       // what threads do
  int64_t heads;   // of a row
  int64_t groups;  // of a thread's heads, in a row
  int64_t half;    // of a head's row
  int64_t angles;  // rows of cos, which repeat
};

// Heads of a thread. kNarrow: x and y are kept as bfloat16.
template <bool kNarrow>
constexpr int kHeadsOf = kNarrow ? 8 : 4;

// Four elements, or one.
__device__ void LoadSome(FloatsIn x, int64_t i, float (&to)[4]) {
  Load4(x, i, to);
}
__device__ void LoadSome(FloatsIn x, int64_t i, float (&to)[1]) {
  to[0] = Load(x, i);
}

// Their memory: all heads' loads start before the first number is needed.
template <int kLength>
using Raw = std::conditional_t<kLength == 4, Vector, float>;

__device__ void LoadRawOf(FloatsIn x, int64_t i, Vector& to) {
  to = LoadVector4(x, i);
}
__device__ void LoadRawOf(FloatsIn x, int64_t i, float& to) { to = Load(x, i); }
__device__ void FromRaw(Storage storage, const Vector& raw, float (&to)[4]) {
  ToFloats(storage, raw, to);
}
__device__ void FromRaw(Storage, float raw, float (&to)[1]) { to[0] = raw; }

template <int kLength>
__device__ void StoreSome(FloatsOut y, int64_t i, float (&x)[kLength],
                          bool measures, AmaxPart& seen) {
  if constexpr (kLength == 4) {
    Store4(y, i, x);
    if (measures) seen.Add4(x);
  } else {
    seen.Add(Store(y, i, x[0]));
  }
}

// kLength pairs: x1 and x2 of the halves. y = (x1, x2) cos + (-x2, x1) sin; the
// gradient turns back.
template <bool kNarrow, bool kGrad, int kLength>
__device__ void Turn(const Turning& t, int64_t number, AmaxPart& seen) {
  constexpr int kHeads = kHeadsOf<kNarrow>;
  const FloatsIn x = Known<kNarrow>(t.x);
  const FloatsOut y = Known<kNarrow>(t.y);
  int64_t width = t.half / kLength, group = Quotient(number, width);
  int64_t i = (number - group * width) * kLength;
  int64_t row = Quotient(group, t.groups);
  int64_t head = (group - row * t.groups) * kHeads;
  int64_t at = 2 * (row * t.heads + head) * t.half + i;
  int64_t turn = row - Quotient(row, t.angles) * t.angles;
  int64_t angle = 2 * turn * t.half + i;
  Raw<kLength> raw1[kHeads], raw2[kHeads];
  ONNX_FP8_UNROLL
  for (int h = 0; h < kHeads; ++h) {
    if (head + h >= t.heads) continue;
    LoadRawOf(x, at + 2 * h * t.half, raw1[h]);
    LoadRawOf(x, at + 2 * h * t.half + t.half, raw2[h]);
  }
  float cos1[kLength], cos2[kLength], sin1[kLength], sin2[kLength];
  LoadSome(t.cos, angle, cos1);
  LoadSome(t.cos, angle + t.half, cos2);
  LoadSome(t.sin, angle, sin1);
  LoadSome(t.sin, angle + t.half, sin2);
  ONNX_FP8_UNROLL
  for (int h = 0; h < kHeads; ++h) {
    if (head + h >= t.heads) continue;
    float x1[kLength], x2[kLength];
    FromRaw(x.storage, raw1[h], x1);
    FromRaw(x.storage, raw2[h], x2);
    for (int k = 0; k < kLength; ++k) {
      float s1 = kGrad ? sin2[k] : -sin1[k], s2 = kGrad ? -sin1[k] : sin2[k];
      float y1 = x1[k] * cos1[k] + x2[k] * s1;
      x2[k] = x2[k] * cos2[k] + x1[k] * s2;
      x1[k] = y1;
    }
    StoreSome(y, at + 2 * h * t.half, x1, t.amax, seen);
    StoreSome(y, at + 2 * h * t.half + t.half, x2, t.amax, seen);
  }
}

template <bool kNarrow, bool kGrad, int kLength>
__global__ void __launch_bounds__(kThreads) TurnKernel(Turning t) {
  int64_t number = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  AmaxPart seen;
  if (number < t.n) Turn<kNarrow, kGrad, kLength>(t, number, seen);
  seen.AddOfBlock(t.amax);
}

template <bool kNarrow, bool kGrad, int kLength>
void StartTurn(const KernelContext& ctx, int64_t rows, Turning t) {
  t.groups = DivideUp(t.heads, kHeadsOf<kNarrow>);
  t.n = rows * t.groups * (t.half / kLength);
  Launch(TurnKernel<kNarrow, kGrad, kLength>, BlocksFor(t.n), kThreads, 0,
         QueueOf(ctx).stream(), t);
}

template <bool kGrad>
void Rotary(KernelContext& ctx) {
  const Tensor &x = Operand(ctx, 0), &cos = Operand(ctx, 1),
               &sin = Operand(ctx, 2);
  int64_t heads = ctx.Int("heads", 0);
  Turning t = {};
  t.x = FloatsOf(ctx, 0);
  bool fits = heads > 0 && x.rank() == 3 && x.dim(2) % (2 * heads) == 0 &&
              cos.rank() == 3 && sin.shape() == cos.shape() &&
              (cos.dim(0) == 1 || cos.dim(0) == x.dim(0)) &&
              cos.dim(1) == x.dim(1) && cos.dim(2) == x.dim(2) / heads &&
              cos.dtype() == DType::kFloat && sin.dtype() == DType::kFloat;
  Check(fits, "[", ctx.Where(),
        "] expected x (B,T,H·D), cos and sin (B or 1,T,D), got ",
        ToString(x.shape()), ToString(cos.shape()), ToString(sin.shape()),
        " and ", heads, " heads");
  t.cos = FloatsOf(ctx, 1);
  t.sin = FloatsOf(ctx, 2);
  t.y = FloatsTo(ctx, 0, x.shape());
  t.amax = ClearedAmax(ctx, 0);
  t.heads = heads;
  t.half = x.dim(2) / heads / 2;
  t.angles = cos.dim(0) * cos.dim(1);
  if (x.size() == 0 || !t.y.data) return;
  int64_t rows = x.dim(0) * x.dim(1);
  if (t.half % 4 != 0) return StartTurn<false, kGrad, 1>(ctx, rows, t);
  if (AreBFloat16({t.x, AsOperand(t.y)})) {
    return StartTurn<true, kGrad, 4>(ctx, rows, t);
  }
  StartTurn<false, kGrad, 4>(ctx, rows, t);
}

}  // namespace

void RegisterRotary(KernelRegistry& r) {
  const KernelTraits traits{.in_place = {{0, 0}},
                            .measures = {0},
                            .narrow_in = {0},
                            .narrow_out = {0}};
  r.Add("Rotary", Rotary<false>, traits, kDomain);
  r.Add("RotaryGrad", Rotary<true>, traits, kDomain);
}

}  // namespace onnx_fp8::cuda
