// SPDX-License-Identifier: Apache-2.0
//
// Kernels of graph/schemas/optimizers.cc, with operations in the order of the
// bodies. One kernel updates many tensors. Numbers that are computed once per
// tensor are computed in double, by one thread, before the others run. Traffic:
// each operand is read once, each result is written once.
#include <cmath>

#include "providers/cuda/core/broadcast.h"
#include "providers/cuda/core/many.h"
#include "providers/cuda/register.h"

namespace onnx_fp8::cuda {
namespace {

enum class Rule : int { kSgd, kMomentum, kAdam, kAdamW };

// The scalar operands, and attributes that tensors of one call share.
struct Settings {
  Rule rule;
  bool nesterov;
  const int64_t* step;  // null without Adam
  const float *lr, *grad_scale;
  const bool* ok;
  float momentum, new1, new2, eps;

  bool operator==(const Settings&) const = default;
};

// What the elements need.
struct Factors {
  float rate, clip, size, root, keep, beta2;
};

// The parameter, its gradient and its moments.
struct State {
  const float *p, *g, *m, *v;
  float *p_out, *m_out, *v_out;
  int64_t n;
  float lr_scale, weight_decay;
};

__global__ void __launch_bounds__(kThreads)
    FactorsKernel(Settings s, Many<State> states, Factors* out) {
  int i = static_cast<int>(threadIdx.x);
  if (i >= states.count) return;
  double rate = static_cast<double>(*s.lr) *
                static_cast<double>(states.tensors[i].lr_scale);
  Factors f = {static_cast<float>(rate), *s.grad_scale, 0, 0, 0, 0};
  if (s.step) {
    double t = static_cast<double>(*s.step);
    double new1 = s.new1, new2 = s.new2;
    double decay = states.tensors[i].weight_decay;
    f.size = static_cast<float>(rate / (1 - pow(1 - new1, t)));
    f.root = static_cast<float>(sqrt(1 - pow(1 - new2, t)));
    f.keep = static_cast<float>(1 - rate * decay);
    f.beta2 = static_cast<float>(1 - new2);
  }
  out[i] = f;
}

__device__ void Adam(const Settings& s, const Factors& f, const State& x,
                     int64_t i) {
  bool decoupled = s.rule == Rule::kAdamW;
  float p = x.p[i], m = x.m[i], v = x.v[i];
  float g = x.g[i] * f.clip;
  if (!decoupled) g += x.weight_decay * p;
  float m1 = m + s.new1 * (g - m);
  float v1 = f.beta2 * v + s.new2 * (g * g);
  float denominator = sqrtf(v1) / f.root + s.eps;
  float start = decoupled ? p * f.keep : p;
  x.p_out[i] = start - f.size * (m1 / denominator);
  x.m_out[i] = m1;
  x.v_out[i] = v1;
}

__device__ void Descent(const Settings& s, const Factors& f, const State& x,
                        int64_t i) {
  float p = x.p[i];
  float g = x.g[i] * f.clip + x.weight_decay * p;
  if (s.rule == Rule::kMomentum) {
    float b1 = s.momentum * x.m[i] + g;
    x.m_out[i] = b1;
    g = s.nesterov ? g + s.momentum * b1 : b1;
  }
  x.p_out[i] = p - f.rate * g;
}

// A skipped step: results are operands.
__device__ void Keep(const State& x, int64_t i) {
  x.p_out[i] = x.p[i];
  if (x.m) x.m_out[i] = x.m[i];
  if (x.v) x.v_out[i] = x.v[i];
}

__global__ void __launch_bounds__(kThreads)
    UpdateKernel(Settings s, const Factors* factors, Many<State> states) {
  int tensor = TensorOf(states, blockIdx.x);
  const State x = states.tensors[tensor];
  int64_t i =
      static_cast<int64_t>(blockIdx.x - states.begin[tensor]) * kThreads +
      threadIdx.x;
  if (i >= x.n) return;
  if (!*s.ok) return Keep(x, i);
  if (s.rule == Rule::kAdam || s.rule == Rule::kAdamW) {
    return Adam(s, factors[tensor], x, i);
  }
  Descent(s, factors[tensor], x, i);
}

// ---- on the host

constexpr bool Steps(Rule rule) {
  return rule == Rule::kAdam || rule == Rule::kAdamW;
}
constexpr size_t Moments(Rule rule) {
  return Steps(rule) ? 2 : rule == Rule::kMomentum ? 1 : 0;
}

// Operands: parameter, gradient, moments, [step], lr, grad_scale, ok.
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
  s.momentum = ctx.Float("momentum", 0);
  s.new1 = ctx.Float("one_minus_beta1", 0.1f);
  s.new2 = ctx.Float("one_minus_beta2", 0.001f);
  s.eps = ctx.Float("eps", 1e-8f);
  return s;
}

State StateOf(KernelContext& ctx, Rule rule) {
  const Shape shape = Operand(ctx, 0).shape();
  for (size_t i = 0; i < 2 + Moments(rule); ++i) {
    CheckOperand(ctx, i, DType::kFloat, shape);
  }
  auto in = [&](size_t i) {
    return static_cast<const float*>(ctx.In(i).raw());
  };
  auto out = [&](size_t i) {
    return static_cast<float*>(ctx.Out(i, DType::kFloat, shape).raw());
  };
  State x = {.p = in(0), .g = in(1), .p_out = out(0), .n = ctx.In(0).size()};
  if (Moments(rule) > 0) x.m = in(2), x.m_out = out(1);
  if (Moments(rule) > 1) x.v = in(3), x.v_out = out(2);
  x.lr_scale = ctx.Float("lr_scale", 1);
  x.weight_decay = ctx.Float("weight_decay", 0);
  return x;
}

void StartUpdates(Queue& queue, const Settings& s,
                  const std::vector<State>& all) {
  static_assert(Many<State>::kMost <= kThreads);
  ForMany(
      all, [](const State& x) { return BlocksFor(x.n); },
      [&](const Many<State>& states) {
        auto* factors = static_cast<Factors*>(
            queue.Scratch(static_cast<size_t>(states.count) * sizeof(Factors)));
        Launch(FactorsKernel, 1, kThreads, 0, queue.stream(), s, states,
               factors);
        Launch(UpdateKernel, states.blocks, kThreads, 0, queue.stream(), s,
               factors, states);
      });
}

// Neighbors with the same settings share a kernel.
template <Rule kRule>
void UpdateMany(std::span<KernelContext> nodes) {
  Queue& queue = QueueOf(nodes[0]);
  Settings settings = SettingsOf(nodes[0], kRule);
  std::vector<State> states;
  for (KernelContext& ctx : nodes) {
    Settings own = SettingsOf(ctx, kRule);
    if (own != settings) {
      StartUpdates(queue, settings, states);
      states.clear();
      settings = own;
    }
    states.push_back(StateOf(ctx, kRule));
  }
  StartUpdates(queue, settings, states);
}

template <Rule kRule>
void Update(KernelContext& ctx) {
  UpdateMany<kRule>({&ctx, 1});
}

}  // namespace

void RegisterOptimizer(KernelRegistry& r) {
  const std::vector<std::pair<int, int>> moments = {{0, 0}, {2, 1}, {3, 2}};
  r.Add("SGD", Update<Rule::kSgd>,
        {.in_place = {{0, 0}}, .many = UpdateMany<Rule::kSgd>}, kDomain);
  r.Add("SGDMomentum", Update<Rule::kMomentum>,
        {.in_place = {{0, 0}, {2, 1}}, .many = UpdateMany<Rule::kMomentum>},
        kDomain);
  r.Add("Adam", Update<Rule::kAdam>,
        {.in_place = moments, .many = UpdateMany<Rule::kAdam>}, kDomain);
  r.Add("AdamW", Update<Rule::kAdamW>,
        {.in_place = moments, .many = UpdateMany<Rule::kAdamW>}, kDomain);
}

}  // namespace onnx_fp8::cuda
