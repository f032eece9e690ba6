// SPDX-License-Identifier: Apache-2.0
//
// Activations, their gradients, and gates. Formulas are the CPU's, in float
// with the toolkit's functions: errors of a few ulp. Traffic: each operand is
// read once, each result is written once; gradients with a bias also write and
// read rows/64 partial sums. The forms that quantize their results are
// fp8/quantize_elements.h's.
#include <cmath>
#include <string>

#include "providers/cuda/core/broadcast.h"
#include "providers/cuda/core/elementwise.h"
#include "providers/cuda/core/row_sums.h"
#include "providers/cuda/fp8/quantize_elements.h"
#include "providers/kernel.h"

namespace onnx_fp8::cuda {
namespace {

// ---- y = f(x)

struct ReluOf {
  __device__ float operator()(float x) const { return x < 0 ? 0.0f : x; }
};
// Divisions by 1 + e^x take a short one, with an error of 2 ulp. It gives 0 for
// divisors above 2¹²⁶.
struct SigmoidOf {
  __device__ float operator()(float x) const {
    return __fdividef(1.0f, 1 + expf(-x));
  }
};
struct TanhOf {
  __device__ float operator()(float x) const { return tanhf(x); }
};
struct SiluOf {
  __device__ float operator()(float x) const {
    return __fdividef(x, 1 + expf(-x));
  }
};
struct LeakyReluOf {
  float alpha;
  __device__ float operator()(float x) const { return x < 0 ? alpha * x : x; }
};
struct SwishOf {
  float alpha;
  __device__ float operator()(float x) const {
    return __fdividef(x, 1 + expf(-alpha * x));
  }
};
struct HardSigmoidOf {
  float alpha, beta;
  __device__ float operator()(float x) const {
    float y = alpha * x + beta;
    return y < 0 ? 0.0f : y > 1 ? 1.0f : y;
  }
};
// A bound that is omitted is null.
template <typename T>
struct ClipOf {
  const T *low, *high;
  __device__ T operator()(T x) const {
    T y = low && x < *low ? *low : x;
    return high && y > *high ? *high : y;
  }
};
struct HardSwishOf {
  __device__ float operator()(float x) const {
    return x * HardSigmoidOf{1.0f / 6, 0.5f}(x);
  }
};

// Functions that few models have: one kernel computes them all.
enum class Rare {
  kCelu,
  kElu,
  kMish,
  kSelu,
  kShrink,
  kSoftplus,
  kSoftsign,
  kThresholdedRelu,
};

// a and b are the function's attributes.
__device__ __attribute__((noinline)) float ValueOf(Rare function, float a,
                                                   float b, float x) {
  switch (function) {
    case Rare::kCelu:
      return x > 0 ? x : a * expm1f(x / a);
    case Rare::kElu:
      return x > 0 ? x : a * expm1f(x);
    case Rare::kMish: {
      // x tanh(log(1 + e)) with e = e^x; beyond 40 it is x to the last bit.
      float e = expf(x > 40 ? 40.0f : x);
      float n = e * (e + 2);
      return x * (n / (n + 2));
    }
    case Rare::kSelu:
      return b * (x > 0 ? x : a * expm1f(x));
    case Rare::kShrink:  // by the bias a, beyond the threshold b
      if (x < -b) return x + a;
      if (x > b) return x - a;
      return x != x ? x : 0.0f;
    case Rare::kSoftplus:
      return (x < 0 ? 0.0f : x) + log1pf(expf(-fabsf(x)));
    case Rare::kSoftsign:
      return x / (1 + fabsf(x));
    case Rare::kThresholdedRelu:
      return x <= a ? 0.0f : x;
  }
  return 0;
}

struct RareOf {
  Rare function;
  float a = 0, b = 0;
  __device__ float operator()(float x) const {
    return ValueOf(function, a, b, x);
  }
};

constexpr float kLog2E = 1.4426950408889634f;

// The normal distribution at x. Where Φ is small, it is
//   Φ(-|x|) = e^(-x²/2) t P(t),  t = 1 / (1 + |x|/4),
// with a polynomial P that was fitted to it: relative error 4e-8. So Φ has an
// absolute error of 2e-7, and no cancellation; far out, its relative error
// comes from x² in the exponential, 1e-7 x².
struct NormalAt {
  float cdf, bell;  // Φ(x), e^(-x²/2)

  __device__ explicit NormalAt(float x)
      : bell(ShortExp2(-0.5f * kLog2E * x * x)) {
    float t = ShortReciprocal(fmaf(0.25f, fabsf(x), 1.0f));
    float p = fmaf(t, 0.020646948f, -0.084712721f);
    p = fmaf(t, p, 0.10273055f);
    p = fmaf(t, p, -0.038948499f);
    p = fmaf(t, p, 0.068045184f);
    p = fmaf(t, p, 0.057396054f);
    p = fmaf(t, p, 0.081942037f);
    p = fmaf(t, p, 0.093426235f);
    p = fmaf(t, p, 0.099738702f);
    p = fmaf(t, p, 0.099735521f);
    float tail = bell * t * p;
    cdf = x > 0 ? 1 - tail : tail;
  }
};

struct GeluOf {
  __device__ float operator()(float x) const { return x * NormalAt(x).cdf; }
};

// Gelu's approximation is x sigmoid(u): (1 + tanh(v)) / 2 = sigmoid(2 v).
constexpr float kGeluScale = 2 * 0.7978845608028654f;  // 2 sqrt(2/pi)
constexpr float kGeluCubic = 0.044715f;

__device__ float GeluSigmoid(float x) {
  float power = -kLog2E * kGeluScale * x * (1 + kGeluCubic * x * x);
  return ShortReciprocal(1 + ShortExp2(power));
}

struct GeluTanhOf {
  __device__ float operator()(float x) const { return x * GeluSigmoid(x); }
};

template <typename F>
struct OfOne {
  F f;
  __device__ void operator()(const float (&in)[1], float (&out)[1]) const {
    out[0] = f(in[0]);
  }
};

template <typename F>
void MapOne(KernelContext& ctx, F f) {
  MapElements<1, 1>(ctx, OfOne<F>{f});
}

template <typename F>
void Plain(KernelContext& ctx) {
  MapOne(ctx, F());
}

void LeakyRelu(KernelContext& ctx) {
  MapOne(ctx, LeakyReluOf{ctx.Float("alpha", 0.01f)});
}
template <Rare kFunction>
void PlainRare(KernelContext& ctx) {
  MapOne(ctx, RareOf{kFunction});
}
void Elu(KernelContext& ctx) {
  MapOne(ctx, RareOf{Rare::kElu, ctx.Float("alpha", 1.0f)});
}
void Celu(KernelContext& ctx) {
  float alpha = ctx.Float("alpha", 1.0f);
  Check(alpha != 0, "[", ctx.Where(), "] expected alpha other than 0, got 0");
  MapOne(ctx, RareOf{Rare::kCelu, alpha});
}
void Selu(KernelContext& ctx) {
  MapOne(ctx,
         RareOf{Rare::kSelu, ctx.Float("alpha", 1.67326319217681884765625f),
                ctx.Float("gamma", 1.05070102214813232421875f)});
}
void ThresholdedRelu(KernelContext& ctx) {
  MapOne(ctx, RareOf{Rare::kThresholdedRelu, ctx.Float("alpha", 1.0f)});
}
void Swish(KernelContext& ctx) {
  MapOne(ctx, SwishOf{ctx.Float("alpha", 1.0f)});
}
void HardSigmoid(KernelContext& ctx) {
  MapOne(ctx, HardSigmoidOf{ctx.Float("alpha", 0.2f), ctx.Float("beta", 0.5f)});
}

void Shrink(KernelContext& ctx) {
  MapOne(ctx, RareOf{Rare::kShrink, ctx.Float("bias", 0.0f),
                     ctx.Float("lambd", 0.5f)});
}

// A bound, in the GPU's memory; null if it is omitted.
template <typename T>
const T* Bound(const KernelContext& ctx, size_t i) {
  if (!ctx.HasIn(i)) return nullptr;
  const Tensor& bound = ctx.In(i);
  Check(bound.dtype() == DTypeOf<T>() && bound.size() == 1, "[", ctx.Where(),
        "] expected a bound of one ", Name(DTypeOf<T>()), ", got ",
        Name(bound.dtype()), " ", ToString(bound.shape()));
  return static_cast<const T*>(bound.raw());
}

void Clip(KernelContext& ctx) {
  const Tensor& x = Operand(ctx, 0);
  ForNumeric(x.dtype(), ctx.Where(), [&]<typename T>() {
    ClipOf<T> clip = {Bound<T>(ctx, 1), Bound<T>(ctx, 2)};
    if constexpr (std::is_same_v<T, float>) {
      MapOne(ctx, clip);
    } else {
      Out<T> y = OutTo<T>(ctx, 0, x.shape());
      if (x.size() == 0) return;
      Launch(UnaryKernel<ClipOf<T>, T, T>, BlocksFor(x.size()), kThreads, 0,
             QueueOf(ctx).stream(), InOf<T>(ctx, 0), y, x.size(), clip);
    }
  });
}

void Gelu(KernelContext& ctx) {
  if (ChoiceIn<bool>(ctx, "approximate", "none", {"none", "tanh"})) {
    return MapOne(ctx, GeluTanhOf());
  }
  MapOne(ctx, GeluOf());
}

// ---- (dy, x) -> dx = dy f'(x)

struct GeluSlope {
  __device__ float operator()(float x) const {
    const NormalAt at(x);
    return at.cdf + x * (0.3989422804014327f * at.bell);
  }
};

struct GeluTanhSlope {
  __device__ float operator()(float x) const {
    float s = GeluSigmoid(x);
    float slope = kGeluScale * (1 + 3 * kGeluCubic * x * x);
    return s + x * s * (1 - s) * slope;
  }
};

// x s and its slope, s (1 + x (1 - s)), with s = sigmoid(x). 1 - s is e s,
// without cancellation; what comes before -87 is 0.
struct SiluParts {
  __device__ explicit SiluParts(float x) {
    bool far = x < -87;
    float e = expf(far ? 87.0f : -x);
    float s = __fdividef(1.0f, 1 + e);
    y = far ? x * 0 : x * s;
    slope = far ? x * 0 : s * (1 + x * (e * s));
  }
  float y, slope;
};

struct SiluSlope {
  __device__ float operator()(float x) const { return SiluParts(x).slope; }
};

template <typename Slope>
struct GradientOf {
  __device__ void operator()(const float (&in)[2], float (&out)[1]) const {
    out[0] = in[0] * Slope()(in[1]);
  }
};

template <typename Slope>
void Gradient(KernelContext& ctx) {
  MapElements<2, 1>(ctx, GradientOf<Slope>());
}

// Also dbias, the sum of dx over all rows, before dx is rounded.
template <typename Slope>
void BiasGradient(KernelContext& ctx) {
  MapWithRowSums(ctx, GradientOf<Slope>());
}

// ---- gates

// y = x sigmoid(x) gate
struct SwiGLUOf {
  __device__ void operator()(const float (&in)[2], float (&out)[1]) const {
    out[0] = __fdividef(in[0], 1 + expf(-in[0])) * in[1];
  }
};

// (dy, x, gate) -> dx = dy gate s (1 + x (1 - s)), dgate = dy x s
struct SwiGLUGradOf {
  __device__ void operator()(const float (&in)[3], float (&out)[2]) const {
    float dy = in[0], x = in[1], gate = in[2];
    SiluParts silu(x);
    out[0] = dy * gate * silu.slope;
    out[1] = dy * silu.y;
  }
};

void SwiGLU(KernelContext& ctx) { MapElements<2, 1>(ctx, SwiGLUOf()); }
void SwiGLUGrad(KernelContext& ctx) { MapElements<3, 2>(ctx, SwiGLUGradOf()); }

// The forms that quantize their results.
template <typename F, int kIn, int kOut = 1>
void Quantized(KernelContext& ctx) {
  QuantizeElements<F, kIn, kOut>(ctx, F());
}

// A result may take the memory of any operand.
KernelTraits Traits(int operands, int results) {
  KernelTraits traits;
  for (int i = 0; i < operands; ++i) {
    traits.narrow_in.push_back(static_cast<size_t>(i));
    for (int j = 0; j < results; ++j) traits.in_place.emplace_back(i, j);
  }
  for (int j = 0; j < results; ++j) {
    traits.measures.push_back(static_cast<size_t>(j));
    traits.narrow_out.push_back(static_cast<size_t>(j));
  }
  return traits;
}

void AddQuantized(KernelRegistry& r) {
  auto traits = [](int operands, int results = 1) {
    KernelTraits t = Traits(operands, results);
    t.measures.clear();  // the quantizer has it
    t.own_amaxes = static_cast<size_t>(results);
    return t;
  };
  const KernelTraits one = traits(1), two = traits(2);
  auto add = [&](const std::string& op, Kernel kernel, const KernelTraits& t) {
    r.Add(op, kernel, t, kDomain);
    r.Add(op + "Padded", kernel, t, kDomain);
  };
  add("ReluQuantize", Quantized<OfOne<ReluOf>, 1>, one);
  add("GeluQuantize", Quantized<OfOne<GeluOf>, 1>, one);
  add("GeluTanhQuantize", Quantized<OfOne<GeluTanhOf>, 1>, one);
  add("SiluQuantize", Quantized<OfOne<SiluOf>, 1>, one);
  add("SwiGLUQuantize", Quantized<SwiGLUOf, 2>, two);
  add("GeluGradQuantize", Quantized<GradientOf<GeluSlope>, 2>, two);
  add("GeluTanhGradQuantize", Quantized<GradientOf<GeluTanhSlope>, 2>, two);
  add("SiluGradQuantize", Quantized<GradientOf<SiluSlope>, 2>, two);
  KernelTraits sums = two;
  sums.workspace = RowSumsWorkspace;
  add("GeluBiasGradQuantize", BiasGradient<GeluSlope>, sums);
  add("GeluTanhBiasGradQuantize", BiasGradient<GeluTanhSlope>, sums);
  add("SiluBiasGradQuantize", BiasGradient<SiluSlope>, sums);
  add("SwiGLUGradQuantize", Quantized<SwiGLUGradOf, 3, 2>, traits(3, 2));
}

}  // namespace

void RegisterActivation(KernelRegistry& r) {
  const KernelTraits one = Traits(1, 1), two = Traits(2, 1);
  r.Add("Relu", Plain<ReluOf>, one);
  r.Add("Sigmoid", Plain<SigmoidOf>, one);
  r.Add("Tanh", Plain<TanhOf>, one);
  r.Add("Softplus", PlainRare<Rare::kSoftplus>, one);
  r.Add("HardSwish", Plain<HardSwishOf>, one);
  r.Add("HardSigmoid", HardSigmoid, one);
  r.Add("LeakyRelu", LeakyRelu, one);
  r.Add("Elu", Elu, one);
  r.Add("Celu", Celu, one);
  r.Add("Selu", Selu, one);
  r.Add("Mish", PlainRare<Rare::kMish>, one);
  r.Add("Softsign", PlainRare<Rare::kSoftsign>, one);
  r.Add("ThresholdedRelu", ThresholdedRelu, one);
  r.Add("Swish", Swish, one);
  r.Add("Shrink", Shrink, one);
  r.Add("Clip", Clip, one);
  r.Add("Gelu", Gelu, one);
  r.Add("Silu", Plain<SiluOf>, one, kDomain);
  r.Add("GeluGrad", Gradient<GeluSlope>, two, kDomain);
  r.Add("GeluTanhGrad", Gradient<GeluTanhSlope>, two, kDomain);
  r.Add("SiluGrad", Gradient<SiluSlope>, two, kDomain);
  KernelTraits sums = two;
  sums.workspace = RowSumsWorkspace;
  r.Add("GeluBiasGrad", BiasGradient<GeluSlope>, sums, kDomain);
  r.Add("GeluTanhBiasGrad", BiasGradient<GeluTanhSlope>, sums, kDomain);
  r.Add("SiluBiasGrad", BiasGradient<SiluSlope>, sums, kDomain);
  r.Add("SwiGLU", SwiGLU, two, kDomain);
  r.Add("SwiGLUGrad", SwiGLUGrad, Traits(3, 2), kDomain);
  AddQuantized(r);
}

}  // namespace onnx_fp8::cuda
