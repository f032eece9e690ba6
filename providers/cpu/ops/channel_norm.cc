// SPDX-License-Identifier: Apache-2.0
//
// Normalization with statistics per channel, per group of channels or along an
// axis. Statistics are computed and applied in double.
#include <algorithm>
#include <cmath>
#include <vector>

#include "providers/cpu/dispatch.h"
#include "providers/cpu/math/ivdep.h"
#include "providers/cpu/math/on_isa.h"
#include "providers/cpu/ops/norm.h"
#include "providers/cpu/tasks.h"
#include "providers/ops/arguments.h"
#include "providers/ops/broadcast.h"
#include "providers/ops/channels.h"

namespace onnx_fp8 {
namespace {

// Operand i, one number per channel, in double.
std::vector<double> PerChannel(const KernelContext& ctx, size_t i,
                               int64_t channels) {
  const Tensor& t = Operand(ctx, i);
  Check(t.shape() == Shape{channels}, "[", ctx.Where(), "] expected input ", i,
        " of shape [", channels, "], got ", ToString(t.shape()));
  Tensor wide = ConvertTo(t, DType::kDouble);
  auto values = wide.values<double>();
  return {values.begin(), values.end()};
}

// y = (x - mean) factor + bias over n elements.
template <typename T>
void Affine(const T* x, double mean, double factor, double bias, T* y,
            int64_t n) {
  OnBestIsa([=] {
    ONNX_FP8_IVDEP  // y is x or does not overlap it
    for (int64_t i = 0; i < n; ++i) {
      y[i] = static_cast<T>((x[i] - mean) * factor + bias);
    }
  });
}

// --- BatchNormalization -----------------------------------------------------

// Sum of f over the elements of one channel.
template <typename T, typename F>
double ChannelSum(const T* x, const AxisView& v, int64_t channel, F f) {
  double total = 0;
  double* out = &total;
  const T* first = x + channel * v.inner;
  int64_t rows = v.outer, step = v.n * v.inner, n = v.inner;
  OnBestIsa([=] {
    double sum = 0;
    for (int64_t b = 0; b < rows; ++b) {
      const T* row = first + b * step;
      sum +=
          n == 1 ? f(row[0]) : LaneSum(n, [=](int64_t i) { return f(row[i]); });
    }
    *out = sum;
  });
  return total;
}

template <typename T>
void BatchStatistics(const T* x, const AxisView& v, double* mean,
                     double* variance) {
  auto count = static_cast<double>(v.outer * v.inner);
  ParallelFor(
      v.n, RowsPerTask(v.outer * v.inner), [=](int64_t begin, int64_t end) {
        for (int64_t c = begin; c < end; ++c) {
          double m =
              ChannelSum(x, v, c, [](T e) -> double { return e; }) / count;
          mean[c] = m;
          variance[c] =
              ChannelSum(x, v, c, [m](T e) { return (e - m) * (e - m); }) /
              count;
        }
      });
}

// Output i: operand * momentum + batch * (1 - momentum), in the operand's
// dtype.
void WriteRunning(KernelContext& ctx, size_t i, DType dtype,
                  std::vector<double> running, const std::vector<double>& batch,
                  double momentum) {
  for (size_t c = 0; c < running.size(); ++c) {
    running[c] = running[c] * momentum + batch[c] * (1.0 - momentum);
  }
  Shape shape = {static_cast<int64_t>(running.size())};
  SetResult(ctx, i, ConvertTo(Tensor::From<double>(shape, running), dtype));
}

void BatchNormalization(KernelContext& ctx) {
  const Tensor& x = Operand(ctx, 0);
  AxisView v = Channels(ctx, x);
  std::vector<double> scale = PerChannel(ctx, 1, v.n);
  std::vector<double> bias = PerChannel(ctx, 2, v.n);
  std::vector<double> mean = PerChannel(ctx, 3, v.n);
  std::vector<double> variance = PerChannel(ctx, 4, v.n);
  double epsilon = ctx.Float("epsilon", 1e-5f);
  double momentum = ctx.Float("momentum", 0.9f);
  bool training = ctx.Int("training_mode", 0) != 0;
  Tensor y = Result(ctx, 0, x.dtype(), x.shape());
  DispatchFloat(x.dtype(), ctx.Where(), [&]<typename T>() {
    const T* in = x.data<T>();
    T* out = y.data<T>();
    if (training) {
      std::vector<double> old_mean = mean, old_variance = variance;
      BatchStatistics(in, v, mean.data(), variance.data());
      WriteRunning(ctx, 1, ctx.In(3).dtype(), old_mean, mean, momentum);
      WriteRunning(ctx, 2, ctx.In(4).dtype(), old_variance, variance, momentum);
    }
    for (size_t c = 0; c < scale.size(); ++c) {
      scale[c] /= std::sqrt(variance[c] + epsilon);
    }
    ParallelFor(v.outer * v.n, RowsPerTask(v.inner),
                [&](int64_t begin, int64_t end) {
                  for (int64_t r = begin; r < end; ++r) {
                    auto c = static_cast<size_t>(r % v.n);
                    Affine(in + r * v.inner, mean[c], scale[c], bias[c],
                           out + r * v.inner, v.inner);
                  }
                });
  });
}

// --- InstanceNormalization, GroupNormalization ------------------------------

// Each (batch, group) is contiguous: one row with its own statistics.
void NormalizeGroups(KernelContext& ctx, int64_t wanted) {
  const Tensor& x = Operand(ctx, 0);
  const auto [v, groups] = GroupsOf(ctx, x, wanted);
  std::vector<double> scale = PerChannel(ctx, 1, v.n);
  std::vector<double> bias = PerChannel(ctx, 2, v.n);
  double epsilon = ctx.Float("epsilon", 1e-5f);
  Tensor y = Result(ctx, 0, x.dtype(), x.shape());
  if (x.size() == 0) return;
  int64_t members = v.n / groups;
  int64_t n = members * v.inner;
  DispatchFloat(x.dtype(), ctx.Where(), [&]<typename T>() {
    ParallelFor(
        v.outer * groups, RowsPerTask(n), [&](int64_t begin, int64_t end) {
          for (int64_t r = begin; r < end; ++r) {
            const T* row = x.data<T>() + r * n;
            double moments[2];
            double* to = moments;
            OnBestIsa([=] {
              to[0] = MeanOf(row, n);
              to[1] = SquaredDeviation(row, n, to[0]) / static_cast<double>(n);
            });
            double inv_std = 1.0 / std::sqrt(moments[1] + epsilon);
            for (int64_t m = 0; m < members; ++m) {
              auto c = static_cast<size_t>(r % groups * members + m);
              Affine(row + m * v.inner, moments[0], inv_std * scale[c], bias[c],
                     y.data<T>() + r * n + m * v.inner, v.inner);
            }
          }
        });
  });
}

void InstanceNormalization(KernelContext& ctx) { NormalizeGroups(ctx, -1); }

void GroupNormalization(KernelContext& ctx) {
  int64_t groups = ctx.Int("num_groups", 0);
  Check(groups > 0, "[", ctx.Where(), "] expected num_groups > 0, got ",
        groups);
  NormalizeGroups(ctx, groups);
}

// --- the rest ---------------------------------------------------------------

// y = x / (sum |x|^p)^(1/p) along an axis.
void LpNormalization(KernelContext& ctx) {
  const Tensor& x = Operand(ctx, 0);
  int64_t p = ctx.Int("p", 2);
  Check(p == 1 || p == 2, "[", ctx.Where(), "] expected p of 1 or 2, got ", p);
  Check(x.rank() > 0, "[", ctx.Where(), "] expected a tensor, got a scalar");
  int64_t axis = AxisIn(ctx, ctx.Int("axis", -1), x.rank());
  AxisView v = ViewAlong(x.shape(), axis);
  Tensor y = Result(ctx, 0, x.dtype(), x.shape());
  DispatchFloat(x.dtype(), ctx.Where(), [&]<typename T>() {
    ParallelFor(v.outer * v.inner, RowsPerTask(v.n),
                [&](int64_t begin, int64_t end) {
                  for (int64_t at = begin; at < end; ++at) {
                    int64_t from = at / v.inner * v.n * v.inner + at % v.inner;
                    const T* in = x.data<T>() + from;
                    T* out = y.data<T>() + from;
                    double sum = 0;
                    for (int64_t i = 0; i < v.n; ++i) {
                      double e = in[i * v.inner];
                      sum += p == 1 ? std::fabs(e) : e * e;
                    }
                    double norm = p == 1 ? sum : std::sqrt(sum);
                    if (norm == 0) norm = 1;  // zeros stay zeros
                    for (int64_t i = 0; i < v.n; ++i) {
                      out[i * v.inner] = static_cast<T>(in[i * v.inner] / norm);
                    }
                  }
                });
  });
}

// y = (x - mean) / (deviation + 1e-9) over a set of axes.
void MeanVarianceNormalization(KernelContext& ctx) {
  const Tensor& x = Operand(ctx, 0);
  Shape kept = x.shape();
  for (int64_t axis : ctx.Ints("axes", {0, 2, 3})) {
    Check(x.rank() > 0, "[", ctx.Where(), "] expected a tensor, got a scalar");
    kept[static_cast<size_t>(AxisIn(ctx, axis, x.rank()))] = 1;
  }
  Tensor y = Result(ctx, 0, x.dtype(), x.shape());
  if (x.size() == 0) return;
  BroadcastPlan plan = PlanBroadcast({kept}, x.shape());
  int64_t step = plan.strides.back()[0];
  auto results = static_cast<size_t>(NumElements(kept));
  double count = static_cast<double>(x.size()) / static_cast<double>(results);
  std::vector<double> mean(results), variance(results);
  DispatchFloat(x.dtype(), ctx.Where(), [&]<typename T>() {
    // fn(element, its statistics' index) for all of x, in order.
    auto each = [&](auto fn) {
      ForRuns(plan, 0, plan.n, [&](const int64_t* s, int64_t at, int64_t n) {
        for (int64_t i = 0; i < n; ++i) {
          fn(at + i, static_cast<size_t>(*s + i * step));
        }
      });
    };
    const T* in = x.data<T>();
    T* out = y.data<T>();
    each([&](int64_t i, size_t s) { mean[s] += in[i]; });
    for (double& m : mean) m /= count;
    each([&](int64_t i, size_t s) {
      variance[s] += (in[i] - mean[s]) * (in[i] - mean[s]) / count;
    });
    each([&](int64_t i, size_t s) {
      out[i] =
          static_cast<T>((in[i] - mean[s]) / (std::sqrt(variance[s]) + 1e-9));
    });
  });
}

// y = x / (bias + alpha/size sum x²)^beta over `size` channels around x's.
void Lrn(KernelContext& ctx) {
  const Tensor& x = Operand(ctx, 0);
  AxisView v = Channels(ctx, x);
  int64_t size = ctx.Int("size", 0);
  Check(size > 0, "[", ctx.Where(), "] expected size > 0, got ", size);
  double scale = ctx.Float("alpha", 1e-4f) / static_cast<double>(size);
  double beta = ctx.Float("beta", 0.75f);
  double bias = ctx.Float("bias", 1.0f);
  Tensor y = Result(ctx, 0, x.dtype(), x.shape());
  DispatchFloat(x.dtype(), ctx.Where(), [&]<typename T>() {
    ParallelFor(
        v.outer * v.n, RowsPerTask(v.inner), [&](int64_t begin, int64_t end) {
          for (int64_t r = begin; r < end; ++r) {
            int64_t channel = r % v.n;
            int64_t first =
                std::max<int64_t>(channel - (size - 1) / 2, 0) - channel;
            int64_t last = std::min(size / 2, v.n - 1 - channel);
            for (int64_t i = 0; i < v.inner; ++i) {
              const T* at = x.data<T>() + r * v.inner + i;
              double square = 0;
              for (int64_t c = first; c <= last; ++c) {
                double e = at[c * v.inner];
                square += e * e;
              }
              y.data<T>()[r * v.inner + i] =
                  static_cast<T>(*at / std::pow(bias + scale * square, beta));
            }
          }
        });
  });
}

}  // namespace

void RegisterChannelNorm(KernelRegistry& r) {
  r.Add("BatchNormalization", Widened<BatchNormalization>);
  r.Add("InstanceNormalization", Widened<InstanceNormalization>);
  r.Add("GroupNormalization", Widened<GroupNormalization>);
  r.Add("LpNormalization", Widened<LpNormalization>);
  r.Add("MeanVarianceNormalization", Widened<MeanVarianceNormalization>);
  r.Add("LRN", Widened<Lrn>);
}

}  // namespace onnx_fp8
