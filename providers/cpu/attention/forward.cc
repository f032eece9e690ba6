// SPDX-License-Identifier: Apache-2.0
//
// The forward pass of attention. A block of rows meets block after block of
// columns: their scores stay in the second-level cache, and the result of a row
// is scaled whenever its largest score grows. Scores beyond a causal mask, and
// blocks whose rows and columns share no segment, are not computed.
#include <atomic>
#include <cstring>
#include <limits>
#include <vector>

#include "base/parallel.h"
#include "providers/cpu/amax_meter.h"
#include "providers/cpu/attention/attention.h"
#include "providers/cpu/attention/blocks.h"
#include "providers/cpu/attention/operands.h"
#include "providers/cpu/attention/rows.h"
#include "providers/cpu/attention/segments.h"
#include "providers/cpu/gemm/packed_matrix.h"
#include "providers/ops/arguments.h"

namespace onnx_fp8 {
namespace {

// Memory that a thread keeps from task to task.
template <typename E>
struct ForwardMemory {
  int64_t packed_call = 0, packed_group = 0;  // whose k and v are packed
  PackedMatrix k, v;
  std::vector<SumOf<E>> scores, result;
  std::vector<E> powers, q, read;
  std::vector<SoftmaxState<SumOf<E>>> state;
};

template <typename E>
class ForwardPass {
 public:
  using T = SumOf<E>;

  ForwardPass(KernelContext& ctx, const AttentionSizes& sizes,
              const AttentionInputs& in)
      : ctx_(ctx), z_(sizes), in_(in), blocks_(BlocksOf<E>()), meter_(ctx, 0) {
    static std::atomic<int64_t> calls = 0;
    call_ = ++calls;
    DType dtype = ComputedAs(ctx.In(0));
    y_ = StoredResult(ctx, 0, dtype, z_.y_shape);
    if (ctx.HasOut(1)) {
      lse_ = ctx.Out(1, dtype, {z_.b, z_.heads, z_.t}).template data<T>();
    }
    if (in.has_relative) relative_ = ctx.In(in.relative()).data<T>();
    if (in.has_bias) bias_ = ctx.In(in.bias()).data<T>();
    if (in.has_segments) segments_ = ctx.In(in.segments()).data<int32_t>();
  }

  void Run() {
    int64_t heads = z_.b * z_.heads;
    if (z_.t == 0) return;
    if (z_.s == 0) {  // an empty sum
      std::memset(y_.raw(), 0, y_.bytes());
      if (lse_) {
        std::fill_n(lse_, heads * z_.t, -std::numeric_limits<T>::infinity());
      }
      return;
    }
    // Rows of a head are split only where there are few heads.
    int64_t split = DivideUp(4 * NumThreads(), std::max<int64_t>(1, heads));
    int64_t rows = RoundUp(DivideUp(z_.t, split), blocks_.rows);
    int64_t parts = DivideUp(z_.t, rows);
    ParallelTasks(heads * parts, [&](int64_t task) {
      thread_local ForwardMemory<E> w;
      int64_t begin = task % parts * rows;
      RunRows(task / parts, begin, std::min(begin + rows, z_.t), w);
    });
  }

 private:
  // What is added to the scores of a head, and which of them are seen.
  struct Head {
    int64_t number;  // in its batch
    const T* bias;   // or null
    Segments segments;
  };

  // Rows begin … end of one head of one batch.
  void RunRows(int64_t head, int64_t begin, int64_t end, ForwardMemory<E>& w) {
    int64_t batch = head / z_.heads;
    head %= z_.heads;
    PackGroup(batch, head / z_.Repeats(), w);
    const Head own = {
        head, bias_ ? bias_ + z_.BiasAt(batch, head) : nullptr,
        segments_ ? Segments(segments_ + batch * z_.t) : Segments()};
    w.scores.resize(static_cast<size_t>(blocks_.Scores()));
    if constexpr (kRounded<E>) {
      w.powers.resize(static_cast<size_t>(blocks_.Scores()));
    }
    w.result.resize(static_cast<size_t>(blocks_.rows * z_.e));
    AmaxMeter::Part amax(meter_);
    StoredOut<T> out(y_);
    for (int64_t row = begin; row < end; row += blocks_.rows) {
      int64_t m = std::min(blocks_.rows, end - row);
      auto q = ReadRows<E>(ctx_.In(0), z_.q.At(batch, head, row), m, z_.q.row,
                           z_.d, w.q);
      w.state.assign(static_cast<size_t>(m), {});
      HeadRows<T> to = {w.result.data(), z_.e};
      int64_t at = z_.y.At(batch, head, row);
      if (!out.narrow()) to = {out.At(at, nullptr), z_.y.row};
      // The first row sees itself, so the first block has columns for all.
      bool begins = true;
      for (int64_t column = 0; column < z_.Columns(row + m);
           column += kColumns) {
        int64_t n = std::min(kColumns, z_.s - column);
        if (!own.segments.MayMeet(row, m, column, n)) continue;
        RunBlock(q, row, m, column, own, begins, to, w);
        begins = false;
      }
      for (int64_t i = 0; i < m; ++i) {
        Finish(w.state[static_cast<size_t>(i)], to.From(i).data);
        amax.Add(to.From(i).data, z_.e);
        out.Write(at + i * z_.y.row, z_.e, to.From(i).data);
        if (lse_) {
          lse_[(batch * z_.heads + head) * z_.t + row + i] =
              LogOfSum(w.state[static_cast<size_t>(i)]);
        }
      }
    }
  }

  void PackGroup(int64_t batch, int64_t group, ForwardMemory<E>& w) const {
    int64_t index = batch * z_.groups + group;
    if (w.packed_call == call_ && w.packed_group == index) return;
    auto k = ReadRows<E>(ctx_.In(in_.operand(1)), z_.k.At(batch, group, 0),
                         z_.s, z_.k.row, z_.d, w.read);
    w.k.Pack(Operand(k, true), z_.d, z_.s);
    auto v = ReadRows<E>(ctx_.In(in_.operand(2)), z_.v.At(batch, group, 0),
                         z_.s, z_.v.row, z_.e, w.read);
    w.v.Pack(Operand(v), z_.s, z_.e);
    w.packed_call = call_;
    w.packed_group = index;
  }

  // Adds relative positions and the bias to the scores of `count` rows and n
  // columns, and hides what other segments have.
  void FinishScores(const HeadRows<T>& s, int64_t row, int64_t count,
                    int64_t column, int64_t n, const Head& head) const {
    for (int64_t r = 0; r < count; ++r) {
      T* scores = s.From(r).data;
      if (relative_) {
        AddBias(scores,
                relative_ + head.number * z_.Distances() + z_.Origin() -
                    (row + r) + column,
                1, n);
      }
      if (head.bias) {
        AddBias(
            scores,
            head.bias + (row + r) * z_.bias_step[2] + column * z_.bias_step[3],
            z_.bias_step[3], n);
      }
      head.segments.Hide(scores, row + r, column, n,
                         -std::numeric_limits<T>::infinity());
    }
  }

  // Adds what m rows from `row` on see of kColumns columns from `column` on, or
  // sets it where the rows begin.
  void RunBlock(const HeadRows<const E>& q, int64_t row, int64_t m,
                int64_t column, const Head& head, bool begins,
                const HeadRows<T>& to, ForwardMemory<E>& w) const {
    bool whole = z_.Columns(row + 1) >= std::min(z_.s, column + kColumns);
    int64_t step = whole ? m : blocks_.piece;
    HeadRows<T> scores = {w.scores.data(), blocks_.Stride()};
    HeadRows<E> powers;
    if constexpr (kRounded<E>) {
      powers = {w.powers.data(), blocks_.Stride()};
    } else {
      powers = scores;
    }
    for (int64_t i = 0; i < m; i += step) {
      int64_t count = std::min(step, m - i);
      int64_t seen = z_.Columns(row + i + count) - column;
      int64_t n = std::min(kColumns, seen);
      if (n <= 0) continue;
      HeadRows<T> s = scores.From(i);
      w.k.Multiply({.m = count,
                    .n = std::min(RoundUp(n, kLanes), z_.s - column),
                    .k = z_.d,
                    .a = Operand(q.From(i)),
                    .scale = z_.scale,
                    .c = s.data,
                    .ldc = s.ld},
                   0, column);
      // Columns that the piece's first row sees.
      int64_t first = z_.Columns(row + i + 1) - column;
      FinishScores(s, row + i, count, column, n, head);
      SoftmaxState<T>* state = w.state.data() + i;
      SoftmaxRows<E>{.scores = s,
                     .powers = powers.From(i),
                     .rows = count,
                     .n = n,
                     .seen = first,
                     .step = z_.causal ? 1 : 0,
                     .state = state}
          .Run();
      RoundRows(z_.round_to, powers.From(i), count, n);
      HeadRows<T> y = to.From(i);
      if (!begins) ScaleRows(y, count, z_.e, state);
      w.v.Multiply({.m = count,
                    .n = z_.e,
                    .k = n,
                    .a = Operand(powers.From(i)),
                    .accumulate = !begins,
                    .c = y.data,
                    .ldc = y.ld},
                   column);
    }
  }

  void Finish(const SoftmaxState<T>& state, T* row) const {
    T share = 1 / state.total;
    for (int64_t j = 0; j < z_.e; ++j) row[j] *= share;
  }

  // NaN for a row that sees only -infinity, as in the op's body.
  static T LogOfSum(const SoftmaxState<T>& state) {
    if (state.total == 0) return std::numeric_limits<T>::quiet_NaN();
    return state.largest + std::log(state.total);
  }

  KernelContext& ctx_;
  const AttentionSizes& z_;
  const AttentionInputs& in_;
  const AttentionBlocks blocks_;
  AmaxMeter meter_;
  int64_t call_ = 0;
  Tensor y_;
  T* lse_ = nullptr;
  const T *relative_ = nullptr, *bias_ = nullptr;
  const int32_t* segments_ = nullptr;
};

}  // namespace

template <typename E>
void AttentionForward(KernelContext& ctx, const AttentionSizes& z,
                      const AttentionInputs& in) {
  ForwardPass<E>(ctx, z, in).Run();
}

template void AttentionForward<float>(KernelContext&, const AttentionSizes&,
                                      const AttentionInputs&);
template void AttentionForward<double>(KernelContext&, const AttentionSizes&,
                                       const AttentionInputs&);
template void AttentionForward<KeptBFloat16>(KernelContext&,
                                             const AttentionSizes&,
                                             const AttentionInputs&);

}  // namespace onnx_fp8
