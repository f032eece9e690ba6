// SPDX-License-Identifier: Apache-2.0
//
// Kernels of graph/schemas/optimizers.cc, with operations in the order of the
// bodies. One kernel updates many tensors. Numbers that are computed once per
// tensor are computed in double, by one thread, before the others run. Traffic:
// each operand is read once, each result is written once.
#include <cmath>

#include "base/stochastic_rounding.h"
#include "providers/cuda/core/broadcast.h"
#include "providers/cuda/core/load_store.h"
#include "providers/cuda/core/many.h"
#include "providers/kernel.h"
#include "providers/ops/element_places.h"

namespace onnx_fp8::cuda {
namespace {

enum class Rule : int { kSgd, kMomentum, kAdam, kAdamW };

// The scalar operands, and attributes that tensors of one call share.
struct Settings {
  Rule rule;
  bool nesterov;
  Storage moments;
  const int64_t* step;  // null without Adam
  const float *lr, *grad_scale;
  const bool* ok;
  const int64_t *seed, *update;  // of the draws; null without any
  float momentum, new1, new2, eps;

  bool operator==(const Settings&) const = default;
};

// What the elements need. It is the kernel's workspace.
struct Factors {
  float rate, clip, size, root, keep, beta2, decay;
  uint32_t key;  // of the draws
  ElementPlaces places;
};

// What a tensor's factors come from.
struct Tuning {
  float lr_scale, weight_decay;
  DrawSettings draws;
  Factors* factors;
};

// The parameter, its gradient and its moments.
struct State {
  const float *p, *g;
  const void *m, *v;
  float* p_out;
  void *m_out, *v_out;
  int64_t n;
  const Factors* factors;
};

__global__ void __launch_bounds__(kThreads)
    FactorsKernel(Settings s, Many<Tuning> many) {
  int i = static_cast<int>(threadIdx.x);
  if (i >= many.count) return;
  const Tuning own = many.tensors[i];
  double rate = static_cast<double>(*s.lr) * static_cast<double>(own.lr_scale);
  Factors f = {.rate = static_cast<float>(rate),
               .clip = *s.grad_scale,
               .decay = own.weight_decay};
  if (s.step) {
    double t = static_cast<double>(*s.step);
    double new1 = s.new1, new2 = s.new2;
    double decay = own.weight_decay;
    f.size = static_cast<float>(rate / (1 - pow(1 - new1, t)));
    f.root = static_cast<float>(sqrt(1 - pow(1 - new2, t)));
    f.keep = static_cast<float>(1 - rate * decay);
    f.beta2 = static_cast<float>(1 - new2);
  }
  if (s.seed) {
    f.key = DrawKey(*s.seed, own.draws.stream, *s.update);
    f.places = own.draws.places;
  }
  *own.factors = f;
}

// x as bfloat16, by the draw of element i.
__device__ uint16_t RoundStochastic(float x, int64_t i,
                                    const ElementPlaces& places, uint32_t key) {
  const bool in_a_row = places.run == places.stride;
  const int64_t place =
      in_a_row ? i + places.shift + places.begin : places.Of(i);
  const uint32_t draw =
      DrawAt(DrawKeyOf(key, place), static_cast<uint32_t>(place));
  return RoundBFloat16(__float_as_uint(x), draw);
}

__device__ void Adam(const Settings& s, const Factors& f, const State& x,
                     int64_t i) {
  bool decoupled = s.rule == Rule::kAdamW;
  float p = x.p[i];
  float m = Load({x.m, s.moments}, i), v = Load({x.v, s.moments}, i);
  float g = x.g[i] * f.clip;
  if (!decoupled) g += f.decay * p;
  float m1 = m + s.new1 * (g - m);
  float v1 = f.beta2 * v + s.new2 * (g * g);
  float denominator = sqrtf(v1) / f.root + s.eps;
  float start = decoupled ? p * f.keep : p;
  x.p_out[i] = start - f.size * (m1 / denominator);
  Store({x.m_out, s.moments}, i, m1);
  if (s.moments == Storage::kFloat) {
    static_cast<float*>(x.v_out)[i] = v1;
  } else {
    static_cast<uint16_t*>(x.v_out)[i] =
        RoundStochastic(v1, i, f.places, f.key);
  }
}

__device__ void Descent(const Settings& s, const Factors& f, const State& x,
                        int64_t i) {
  float p = x.p[i];
  float g = x.g[i] * f.clip + f.decay * p;
  if (s.rule == Rule::kMomentum) {
    float b1 = s.momentum * Load({x.m, s.moments}, i) + g;
    Store({x.m_out, s.moments}, i, b1);
    g = s.nesterov ? g + s.momentum * b1 : b1;
  }
  x.p_out[i] = p - f.rate * g;
}

__device__ void CopyMoment(Storage storage, const void* from, void* to,
                           int64_t i) {
  if (!from) return;
  if (storage == Storage::kFloat) {
    static_cast<float*>(to)[i] = static_cast<const float*>(from)[i];
  } else {
    static_cast<uint16_t*>(to)[i] = static_cast<const uint16_t*>(from)[i];
  }
}

// A skipped step, or a gradient that is not finite: results are operands.
__device__ void Keep(const Settings& s, const State& x, int64_t i) {
  x.p_out[i] = x.p[i];
  CopyMoment(s.moments, x.m, x.m_out, i);
  CopyMoment(s.moments, x.v, x.v_out, i);
}

__global__ void __launch_bounds__(kThreads)
    UpdateKernel(Settings s, Many<State> states) {
  int tensor = TensorOf(states, blockIdx.x);
  const State x = states.tensors[tensor];
  int64_t i =
      static_cast<int64_t>(blockIdx.x - states.begin[tensor]) * kThreads +
      threadIdx.x;
  if (i >= x.n) return;
  if (!*s.ok || !isfinite(x.g[i])) return Keep(s, x, i);
  if (s.rule == Rule::kAdam || s.rule == Rule::kAdamW) {
    return Adam(s, *x.factors, x, i);
  }
  Descent(s, *x.factors, x, i);
}

__global__ void __launch_bounds__(kThreads)
    RoundStochasticKernel(const float* x, uint16_t* y, int64_t n,
                          const int64_t* seed, const int64_t* update,
                          DrawSettings draws) {
  int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= n) return;
  const uint32_t key = DrawKey(*seed, draws.stream, *update);
  y[i] = RoundStochastic(x[i], i, draws.places, key);
}

// ---- on the host

constexpr bool Steps(Rule rule) {
  return rule == Rule::kAdam || rule == Rule::kAdamW;
}
constexpr size_t Moments(Rule rule) {
  return Steps(rule) ? 2 : rule == Rule::kMomentum ? 1 : 0;
}

// The dtype in which the node's moments are kept.
DType MomentDType(const KernelContext& ctx, Rule rule) {
  const bool coded = Moments(rule) > 0 && ctx.HasIn(2) &&
                     ctx.In(2).dtype() == DType::kBFloat16;
  return coded ? DType::kBFloat16 : DType::kFloat;
}

// Operands: parameter, gradient, moments, [step], lr, grad_scale, ok, [seed,
// update].
Settings SettingsOf(const KernelContext& ctx, Rule rule) {
  size_t next = 2 + Moments(rule);
  auto scalar = [&](DType dtype) {
    CheckOperand(ctx, next, dtype, {});
    return ctx.In(next++).raw();
  };
  Settings s = {.rule = rule, .nesterov = ctx.Int("nesterov", 0) != 0};
  if (Steps(rule)) s.step = static_cast<const int64_t*>(scalar(DType::kInt64));
  s.lr = static_cast<const float*>(scalar(DType::kFloat));
  s.grad_scale = static_cast<const float*>(scalar(DType::kFloat));
  s.ok = static_cast<const bool*>(scalar(DType::kBool));
  s.moments = StorageOf(ctx, MomentDType(ctx, rule));
  if (s.moments != Storage::kFloat && Steps(rule)) {
    s.seed = static_cast<const int64_t*>(scalar(DType::kInt64));
    s.update = static_cast<const int64_t*>(scalar(DType::kInt64));
  }
  s.momentum = ctx.Float("momentum", 0);
  s.new1 = ctx.Float("one_minus_beta1", 0.1f);
  s.new2 = ctx.Float("one_minus_beta2", 0.001f);
  s.eps = ctx.Float("eps", 1e-8f);
  return s;
}

State StateOf(KernelContext& ctx, Rule rule) {
  const Shape shape = Operand(ctx, 0).shape();
  const DType moments = MomentDType(ctx, rule);
  auto in = [&](size_t i, DType dtype) {
    CheckOperand(ctx, i, dtype, shape);
    return ctx.In(i).raw();
  };
  State x = {
      .p = static_cast<const float*>(in(0, DType::kFloat)),
      .g = static_cast<const float*>(in(1, DType::kFloat)),
      .p_out = static_cast<float*>(ctx.Out(0, DType::kFloat, shape).raw()),
      .n = ctx.In(0).size()};
  if (Moments(rule) > 0) {
    x.m = in(2, moments);
    x.m_out = ctx.Out(1, moments, shape).raw();
  }
  if (Moments(rule) > 1) {
    x.v = in(3, moments);
    x.v_out = ctx.Out(2, moments, shape).raw();
  }
  return x;
}

size_t UpdateWorkspace(KernelContext&) { return sizeof(Factors); }

Tuning TuningOf(KernelContext& ctx) {
  return {ctx.Float("lr_scale", 1), ctx.Float("weight_decay", 0),
          DrawSettingsOf(ctx),
          static_cast<Factors*>(ctx.Workspace(UpdateWorkspace(ctx)))};
}

void StartUpdates(std::span<KernelContext> nodes, const Settings& s) {
  static_assert(Many<Tuning>::kMost <= kThreads);
  cudaStream_t stream = QueueOf(nodes[0]).stream();
  std::vector<Tuning> tunings;
  std::vector<State> states;
  for (KernelContext& ctx : nodes) {
    tunings.push_back(TuningOf(ctx));
    states.push_back(StateOf(ctx, s.rule));
    states.back().factors = tunings.back().factors;
  }
  ForMany(
      tunings, [](const Tuning&) { return 1u; },
      [&](const Many<Tuning>& many) {
        Launch(FactorsKernel, 1, kThreads, 0, stream, s, many);
      });
  ForMany(
      states, [](const State& x) { return BlocksFor(x.n); },
      [&](const Many<State>& many) {
        Launch(UpdateKernel, many.blocks, kThreads, 0, stream, s, many);
      });
}

// Neighbors with the same settings share a kernel.
template <Rule kRule>
void UpdateMany(std::span<KernelContext> nodes) {
  while (!nodes.empty()) {
    const Settings settings = SettingsOf(nodes[0], kRule);
    size_t count = 1;
    while (count < nodes.size() &&
           SettingsOf(nodes[count], kRule) == settings) {
      ++count;
    }
    StartUpdates(nodes.first(count), settings);
    nodes = nodes.subspan(count);
  }
}

template <Rule kRule>
void Update(KernelContext& ctx) {
  UpdateMany<kRule>({&ctx, 1});
}

// Inputs: x, seed, update.
void RoundStochasticOp(KernelContext& ctx) {
  const Shape shape = Operand(ctx, 0).shape();
  CheckOperand(ctx, 0, DType::kFloat, shape);
  for (size_t i : {1, 2}) CheckOperand(ctx, i, DType::kInt64, {});
  auto scalar = [&](size_t i) {
    return static_cast<const int64_t*>(ctx.In(i).raw());
  };
  const int64_t n = ctx.In(0).size();
  void* y = ctx.Out(0, DType::kBFloat16, shape).raw();
  if (n == 0) return;
  Launch(RoundStochasticKernel, BlocksFor(n), kThreads, 0,
         QueueOf(ctx).stream(), static_cast<const float*>(ctx.In(0).raw()),
         static_cast<uint16_t*>(y), n, scalar(1), scalar(2),
         DrawSettingsOf(ctx));
}

template <Rule kRule>
void Register(KernelRegistry& r, const char* op) {
  KernelTraits traits = {.in_place = {{0, 0}},
                         .coded_moments = Moments(kRule) > 0,
                         .workspace = UpdateWorkspace,
                         .many = UpdateMany<kRule>};
  for (int i = 1; i <= static_cast<int>(Moments(kRule)); ++i) {
    traits.in_place.emplace_back(i + 1, i);
  }
  r.Add(op, Update<kRule>, traits, kDomain);
}

}  // namespace

void RegisterOptimizer(KernelRegistry& r) {
  Register<Rule::kSgd>(r, "SGD");
  Register<Rule::kMomentum>(r, "SGDMomentum");
  Register<Rule::kAdam>(r, "Adam");
  Register<Rule::kAdamW>(r, "AdamW");
  r.Add("RoundStochastic", RoundStochasticOp, {}, kDomain);
}

}  // namespace onnx_fp8::cuda
