// SPDX-License-Identifier: Apache-2.0
//
// LSTM, GRU and RNN, forward. Letters and gate orders are ONNX's: x (T,B,I),
// w (D,G·H,I), r (D,G·H,H), b (D,2·G·H), y (T,D,B,H) with T steps, B the batch,
// I inputs, H hidden, D directions, G gates; layout 1 puts B first.
#include <algorithm>
#include <cmath>
#include <vector>

#include "base/parallel.h"
#include "providers/cpu/dispatch.h"
#include "providers/cpu/gemm/gemm.h"
#include "providers/kernel.h"
#include "providers/ops/arguments.h"

namespace onnx_fp8 {
namespace {

enum class Activation { kSigmoid, kTanh, kRelu };

struct Cell {
  int64_t steps = 0, batch = 0, inputs = 0, hidden = 0;
  int64_t directions = 1, gates = 0;
  bool batch_first = false;
  bool first_is_reverse = false;
  float clip = 0;  // 0: none; bounds the input of every gate's activation
  std::vector<Activation> activations;  // per direction, as in the op's text
  size_t activations_each = 0;
  std::vector<int64_t> lengths;  // per batch element

  bool Reverse(int64_t d) const { return d == 1 || first_is_reverse; }
  Activation Act(int64_t d, size_t i) const {
    return activations[static_cast<size_t>(d) * activations_each + i];
  }
  // Offsets of a row of x, of a state tensor and of y.
  int64_t RowOfX(int64_t t, int64_t i) const {
    return batch_first ? i * steps + t : t * batch + i;
  }
  int64_t AtState(int64_t d, int64_t i) const {
    return (batch_first ? i * directions + d : d * batch + i) * hidden;
  }
  int64_t AtY(int64_t t, int64_t d, int64_t i) const {
    return (batch_first ? (i * steps + t) * directions + d
                        : (t * directions + d) * batch + i) *
           hidden;
  }
  Shape StateShape() const {
    return batch_first ? Shape{batch, directions, hidden}
                       : Shape{directions, batch, hidden};
  }
  Shape YShape() const {
    return batch_first ? Shape{batch, steps, directions, hidden}
                       : Shape{steps, directions, batch, hidden};
  }
};

template <typename T>
T Apply(Activation activation, T x) {
  switch (activation) {
    case Activation::kSigmoid:
      return 1 / (1 + std::exp(-x));
    case Activation::kTanh:
      return std::tanh(x);
    default:
      return x < 0 ? T{0} : x;
  }
}

template <typename T>
T Apply(const Cell& cell, Activation activation, T x) {
  T bound = cell.clip;
  return Apply(activation, bound > 0 ? std::clamp(x, -bound, bound) : x);
}

void CheckIfGiven(const KernelContext& ctx, size_t i, DType dtype,
                  const Shape& shape) {
  if (ctx.HasIn(i)) CheckOperand(ctx, i, dtype, shape);
}

std::vector<Activation> ActivationsOf(const KernelContext& ctx,
                                      const std::vector<Activation>& defaults,
                                      int64_t directions) {
  std::vector<Activation> all;
  const auto& attributes = ctx.node().attributes;
  auto it = attributes.find("activations");
  if (it == attributes.end()) {
    for (int64_t d = 0; d < directions; ++d) {
      all.insert(all.end(), defaults.begin(), defaults.end());
    }
    return all;
  }
  auto names = std::get_if<std::vector<std::string>>(&it->second);
  Check(names &&
            names->size() == defaults.size() * static_cast<size_t>(directions),
        "[", ctx.Where(), "] expected ", defaults.size(),
        " activations per direction");
  for (const std::string& name : *names) {
    bool sigmoid = name == "Sigmoid", tanh = name == "Tanh";
    Check(sigmoid || tanh || name == "Relu", "[", ctx.Where(),
          "] expected activations Sigmoid, Tanh or Relu, got ", name);
    all.push_back(sigmoid ? Activation::kSigmoid
                  : tanh  ? Activation::kTanh
                          : Activation::kRelu);
  }
  return all;
}

std::vector<int64_t> LengthsOf(const KernelContext& ctx, const Cell& cell) {
  std::vector<int64_t> lengths(static_cast<size_t>(cell.batch), cell.steps);
  if (!ctx.HasIn(4)) return lengths;
  CheckIfGiven(ctx, 4, DType::kInt32, {cell.batch});
  lengths = ToInts(ctx.In(4));
  for (int64_t n : lengths) {
    Check(n >= 0 && n <= cell.steps, "[", ctx.Where(),
          "] expected sequence_lens from 0 to ", cell.steps, ", got ", n);
  }
  return lengths;
}

// Reads and checks the parts that the three ops share: attributes and inputs 0
// to 5.
Cell CellOf(const KernelContext& ctx, int64_t gates,
            const std::vector<Activation>& defaults) {
  const Tensor &x = ctx.In(0), &w = ctx.In(1), &r = ctx.In(2);
  Check(x.rank() == 3 && w.rank() == 3 && r.rank() == 3, "[", ctx.Where(),
        "] expected X, W and R of rank 3, got ", ToString(x.shape()),
        ToString(w.shape()), ToString(r.shape()));
  Cell cell;
  cell.gates = gates;
  cell.batch_first = ctx.Int("layout", 0) != 0;
  cell.steps = x.dim(cell.batch_first ? 1 : 0);
  cell.batch = x.dim(cell.batch_first ? 0 : 1);
  cell.inputs = x.dim(2);
  cell.hidden = r.dim(2);
  enum class Direction { kForward, kReverse, kBoth };
  auto direction = ChoiceIn<Direction>(ctx, "direction", "forward",
                                       {"forward", "reverse", "bidirectional"});
  cell.directions = direction == Direction::kBoth ? 2 : 1;
  cell.first_is_reverse = direction == Direction::kReverse;
  Check(ctx.Int("hidden_size", cell.hidden) == cell.hidden, "[", ctx.Where(),
        "] expected hidden_size ", cell.hidden, ", got ",
        ctx.Int("hidden_size", 0));
  cell.clip = ctx.Float("clip", 0.0f);
  Check(cell.clip >= 0, "[", ctx.Where(), "] expected clip >= 0, got ",
        cell.clip);
  int64_t d = cell.directions, rows = gates * cell.hidden;
  CheckIfGiven(ctx, 1, x.dtype(), {d, rows, cell.inputs});
  CheckIfGiven(ctx, 2, x.dtype(), {d, rows, cell.hidden});
  CheckIfGiven(ctx, 3, x.dtype(), {d, 2 * rows});
  CheckIfGiven(ctx, 5, x.dtype(), cell.StateShape());
  cell.activations = ActivationsOf(ctx, defaults, d);
  cell.activations_each = defaults.size();
  cell.lengths = LengthsOf(ctx, cell);
  return cell;
}

// The data of one direction. A row is an element of the batch.
template <typename T>
struct Run {
  const Cell& cell;
  int64_t d;
  const T* r;               // (G·H, H)
  const T* recurrent_bias;  // (G·H) or null; only the part not in `from_x`
  const T* peephole;        // (3·H) or null
  std::vector<T> from_x;    // (T·B, G·H): x · wᵀ + biases
  std::vector<T> h, c;      // (B, H)
  std::vector<T> from_h;    // (B, G·H): h · rᵀ
  std::vector<T> reset;     // (B, H), GRU only
};

// to (B, gates·H) = h · rᵀ for the gates from `first` on; the rows of `to` have
// all gates.
template <typename T>
void Recur(Run<T>& run, const std::vector<T>& h, int64_t first, int64_t gates) {
  const Cell& cell = run.cell;
  GemmProblem p = {.m = cell.batch,
                   .n = gates * cell.hidden,
                   .k = cell.hidden,
                   .ldc = cell.gates * cell.hidden};
  p.a = {h.data(), DTypeOf<T>(), cell.hidden, false};
  p.b = {run.r + first * cell.hidden * cell.hidden, DTypeOf<T>(), cell.hidden,
         true};
  p.c = run.from_h.data() + first * cell.hidden;
  Gemm(p);
}

// fn(i) for every element of the batch that has a step t.
template <typename Fn>
void ForEachRow(const Cell& cell, int64_t t, Fn fn) {
  int64_t grain = std::max<int64_t>(1, 512 / std::max<int64_t>(cell.hidden, 1));
  ParallelFor(cell.batch, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (t < cell.lengths[static_cast<size_t>(i)]) fn(i);
    }
  });
}

template <typename T>
void RnnStep(Run<T>& run, int64_t t) {
  const Cell& cell = run.cell;
  Recur(run, run.h, 0, 1);
  ForEachRow(cell, t, [&](int64_t i) {
    const T* x = run.from_x.data() + cell.RowOfX(t, i) * cell.hidden;
    for (int64_t j = 0; j < cell.hidden; ++j) {
      int64_t at = i * cell.hidden + j;
      T sum = x[j] + run.from_h[static_cast<size_t>(at)];
      run.h[static_cast<size_t>(at)] = Apply(cell, cell.Act(run.d, 0), sum);
    }
  });
}

template <typename T>
void LstmStep(Run<T>& run, int64_t t, bool input_forget) {
  const Cell& cell = run.cell;
  int64_t n = cell.hidden;
  Recur(run, run.h, 0, 4);
  Activation f = cell.Act(run.d, 0), g = cell.Act(run.d, 1);
  Activation last = cell.Act(run.d, 2);
  ForEachRow(cell, t, [&](int64_t i) {
    const T* x = run.from_x.data() + cell.RowOfX(t, i) * 4 * n;
    const T* a = run.from_h.data() + i * 4 * n;
    T* c = run.c.data() + i * n;
    T* h = run.h.data() + i * n;
    // Gates i, o, f, c; peepholes i, o, f.
    auto sum = [&](int64_t gate, int64_t j, T state) {
      T peep =
          run.peephole && gate < 3 ? run.peephole[gate * n + j] * state : T{0};
      return x[gate * n + j] + a[gate * n + j] + peep;
    };
    for (int64_t j = 0; j < n; ++j) {
      T in = Apply(cell, f, sum(0, j, c[j]));
      T forget = input_forget ? 1 - in : Apply(cell, f, sum(2, j, c[j]));
      c[j] = forget * c[j] + in * Apply(cell, g, sum(3, j, c[j]));
      T out = Apply(cell, f, sum(1, j, c[j]));
      h[j] = out * Apply(last, c[j]);
    }
  });
}

template <typename T>
void GruStep(Run<T>& run, int64_t t, bool linear_before_reset) {
  const Cell& cell = run.cell;
  int64_t n = cell.hidden;
  Recur(run, run.h, 0, linear_before_reset ? 3 : 2);
  Activation f = cell.Act(run.d, 0), g = cell.Act(run.d, 1);
  auto x = [&](int64_t i) {
    return run.from_x.data() + cell.RowOfX(t, i) * 3 * n;
  };
  auto a = [&](int64_t i) { return run.from_h.data() + i * 3 * n; };
  auto r = [&](int64_t i, int64_t j) {
    return Apply(cell, f, x(i)[n + j] + a(i)[n + j]);
  };
  if (!linear_before_reset) {
    // A row without this step keeps an old product that nobody reads.
    ForEachRow(cell, t, [&](int64_t i) {
      for (int64_t j = 0; j < n; ++j) {
        auto at = static_cast<size_t>(i * n + j);
        run.reset[at] = r(i, j) * run.h[at];
      }
    });
    Recur(run, run.reset, 2, 1);
  }
  ForEachRow(cell, t, [&](int64_t i) {
    T* h = run.h.data() + i * n;
    for (int64_t j = 0; j < n; ++j) {
      T z = Apply(cell, f, x(i)[j] + a(i)[j]);
      T product = a(i)[2 * n + j];
      if (linear_before_reset) {
        T bias = run.recurrent_bias ? run.recurrent_bias[2 * n + j] : T{0};
        product = r(i, j) * (product + bias);
      }
      T next = Apply(cell, g, x(i)[2 * n + j] + product);
      h[j] = (1 - z) * next + z * h[j];
    }
  });
}

// Everything that one direction needs before its first step. The recurrent bias
// of the gates from `own` on is not part of from_x.
template <typename T>
Run<T> Start(const KernelContext& ctx, const Cell& cell, int64_t d,
             int64_t own) {
  int64_t rows = cell.gates * cell.hidden;
  auto state = static_cast<size_t>(cell.batch * cell.hidden);
  Run<T> run = {cell,    d,       ctx.In(2).data<T>() + d * rows * cell.hidden,
                nullptr, nullptr, {},
                {},      {},      {},
                {}};
  run.h.resize(state);
  run.from_h.resize(state * static_cast<size_t>(cell.gates));
  run.from_x.resize(static_cast<size_t>(cell.steps * cell.batch * rows));
  std::vector<T> bias(static_cast<size_t>(rows), T{0});
  if (ctx.HasIn(3)) {
    const T* b = ctx.In(3).data<T>() + d * 2 * rows;
    run.recurrent_bias = b + rows;
    for (int64_t i = 0; i < rows; ++i) {
      bool add = i < own * cell.hidden;
      bias[static_cast<size_t>(i)] = b[i] + (add ? b[rows + i] : T{0});
    }
  }
  if (ctx.HasIn(5)) {
    for (int64_t i = 0; i < cell.batch; ++i) {
      const T* h0 = ctx.In(5).data<T>() + cell.AtState(d, i);
      std::copy(h0, h0 + cell.hidden, run.h.begin() + i * cell.hidden);
    }
  }
  GemmProblem p = {.m = cell.steps * cell.batch,
                   .n = rows,
                   .k = cell.inputs,
                   .bias = bias.data(),
                   .c = run.from_x.data()};
  p.a = {ctx.In(0).raw(), DTypeOf<T>(), cell.inputs, false};
  p.b = {ctx.In(1).data<T>() + d * rows * cell.inputs, DTypeOf<T>(),
         cell.inputs, true};
  Gemm(p);
  return run;
}

template <typename T>
void WriteState(KernelContext& ctx, size_t output, const Cell& cell, int64_t d,
                const std::vector<T>& rows) {
  if (!ctx.HasOut(output)) return;
  Tensor& state = ctx.Out(output, DTypeOf<T>(), cell.StateShape());
  T* to = state.data<T>();
  for (int64_t i = 0; i < cell.batch; ++i) {
    auto from = rows.begin() + i * cell.hidden;
    std::copy(from, from + cell.hidden, to + cell.AtState(d, i));
  }
}

// All steps of one direction; step(t) updates run.h. Writes Y and Y_h.
template <typename T, typename Step>
void RunSteps(KernelContext& ctx, Run<T>& run, Step step) {
  const Cell& cell = run.cell;
  T* y = nullptr;
  if (ctx.HasOut(0)) {
    Tensor& out = ctx.Out(0, DTypeOf<T>(), cell.YShape());
    y = out.data<T>();
  }
  for (int64_t s = 0; s < cell.steps; ++s) {
    int64_t t = cell.Reverse(run.d) ? cell.steps - 1 - s : s;
    step(t);
    if (!y) continue;
    for (int64_t i = 0; i < cell.batch; ++i) {
      T* to = y + cell.AtY(t, run.d, i);
      if (t < cell.lengths[static_cast<size_t>(i)]) {
        auto from = run.h.begin() + i * cell.hidden;
        std::copy(from, from + cell.hidden, to);
      } else {
        std::fill_n(to, cell.hidden, T{0});
      }
    }
  }
  WriteState(ctx, 1, cell, run.d, run.h);
}

void Rnn(KernelContext& ctx) {
  Cell cell = CellOf(ctx, 1, {Activation::kTanh});
  DispatchFloat(ctx.In(0).dtype(), ctx.Where(), [&]<typename T>() {
    for (int64_t d = 0; d < cell.directions; ++d) {
      Run<T> run = Start<T>(ctx, cell, d, 1);
      RunSteps(ctx, run, [&](int64_t t) { RnnStep(run, t); });
    }
  });
}

void Gru(KernelContext& ctx) {
  Cell cell = CellOf(ctx, 3, {Activation::kSigmoid, Activation::kTanh});
  bool before = ctx.Int("linear_before_reset", 0) != 0;
  DispatchFloat(ctx.In(0).dtype(), ctx.Where(), [&]<typename T>() {
    for (int64_t d = 0; d < cell.directions; ++d) {
      Run<T> run = Start<T>(ctx, cell, d, before ? 2 : 3);
      run.reset.resize(run.h.size());
      RunSteps(ctx, run, [&](int64_t t) { GruStep(run, t, before); });
    }
  });
}

void Lstm(KernelContext& ctx) {
  Cell cell = CellOf(
      ctx, 4, {Activation::kSigmoid, Activation::kTanh, Activation::kTanh});
  DType dtype = ctx.In(0).dtype();
  CheckIfGiven(ctx, 6, dtype, cell.StateShape());
  CheckIfGiven(ctx, 7, dtype, {cell.directions, 3 * cell.hidden});
  bool input_forget = ctx.Int("input_forget", 0) != 0;
  DispatchFloat(dtype, ctx.Where(), [&]<typename T>() {
    for (int64_t d = 0; d < cell.directions; ++d) {
      Run<T> run = Start<T>(ctx, cell, d, 4);
      run.c.resize(run.h.size());
      for (int64_t i = 0; ctx.HasIn(6) && i < cell.batch; ++i) {
        const T* c0 = ctx.In(6).data<T>() + cell.AtState(d, i);
        std::copy(c0, c0 + cell.hidden, run.c.begin() + i * cell.hidden);
      }
      if (ctx.HasIn(7)) {
        run.peephole = ctx.In(7).data<T>() + d * 3 * cell.hidden;
      }
      RunSteps(ctx, run, [&](int64_t t) { LstmStep(run, t, input_forget); });
      WriteState(ctx, 2, cell, d, run.c);
    }
  });
}

}  // namespace

void RegisterRecurrent(KernelRegistry& r) {
  r.Add("RNN", Rnn);
  r.Add("GRU", Gru);
  r.Add("LSTM", Lstm);
}

}  // namespace onnx_fp8
