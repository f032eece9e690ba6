// SPDX-License-Identifier: Apache-2.0
//
// The backward pass of attention. The probabilities are computed again from
// lse, in transposed blocks: rows are columns of the scores, that is keys. If
// lse is large, its rounding would show in them; then their sum is computed
// first. Blocks whose rows and keys share no segment are left out. A task has
// the keys of one *split* of one head: it finishes their dk and dv, and its
// part of dq. Then the parts are added: dq over splits, dk and dv over the
// heads that share them. The order of these sums depends on sizes alone.
#include <algorithm>
#include <cmath>
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
#include "providers/cpu/gemm/scratch.h"
#include "providers/cpu/math/ivdep.h"
#include "providers/ops/arguments.h"

namespace onnx_fp8 {
namespace {

// Memory that a thread keeps from task to task, and the operands of its task.
template <typename E>
struct BackwardMemory {
  PackedMatrix q, q_transposed, dy, dy_transposed, k;
  HeadRows<const E> k_rows, v_rows;
  std::vector<SumOf<E>> lse, share, along, scores, dscores, read_dy, read_y;
  std::vector<E> p, ds, read_k, read_v, read;
};

// Partial results of a wave: of the heads that are computed before parts are
// added.
template <typename T>
struct Parts {
  T *dq, *dk, *dv;  // (head, split, T, D), (head, S, D), (head, S, E)
  T* drelative;     // (head, split, T+S-1), from the last element to the first
  // (2, S, D), (2, S, E): the sums of a group of heads that continues in the
  // next wave. Groups with even numbers have the first sum and groups with odd
  // numbers the second, because one group may end in a wave in which the next
  // group begins.
  T *dk_sum, *dv_sum;
};

// m keys from `key` on by n rows from `row` on.
struct Block {
  int64_t key, m, row, n;
};

template <typename E>
class BackwardPass {
 public:
  using T = SumOf<E>;

  BackwardPass(KernelContext& ctx, const AttentionSizes& sizes,
               const AttentionInputs& in)
      : ctx_(ctx),
        z_(sizes),
        in_(in),
        blocks_(BlocksOf<E>()),
        meters_{{ctx, 0}, {ctx, 1}, {ctx, 2}} {
    DType dtype = ComputedAs(ctx.In(1));
    for (size_t i = 0; i < in.count(); ++i) {
      if (!ctx.HasOut(i)) continue;
      outputs_[i] = StoredResult(ctx, i, dtype, ctx.In(i + 1).shape());
    }
    if (in.has_relative) {
      relative_ = ctx.In(in.relative()).data<T>();
      if (ctx.HasOut(3)) {
        drelative_ = ctx.Out(3, dtype, {z_.heads, z_.Distances()});
      }
    }
    if (in.has_bias) bias_ = ctx.In(in.bias()).data<T>();
    if (in.has_segments) segments_ = ctx.In(in.segments()).data<int32_t>();
    // Eight parts of dq at most.
    split_ = RoundUp(std::max(kMinSplit, DivideUp(z_.s, 8)), kLanes);
    splits_ = DivideUp(z_.s, split_);
  }

  void Run() {
    int64_t heads = z_.b * z_.heads;
    // Tasks enough for all threads; the parts of long sequences take memory.
    int64_t tasks = (splits_ > 1 ? 2 : 4) * NumThreads();
    int64_t wave = std::min(heads, DivideUp(tasks, splits_));
    parts_ = Allocate(wave);
    FindShares();
    if (drelative_.defined()) {
      std::memset(drelative_.raw(), 0, drelative_.bytes());
    }
    for (int64_t first = 0; first < heads; first += wave) {
      int64_t count = std::min(wave, heads - first);
      ParallelTasks(count * splits_, [&](int64_t task) {
        thread_local BackwardMemory<E> w;
        RunSplit(first + task / splits_, task / splits_, task % splits_, w);
      });
      AddOverSplits(first, count);
      AddOverHeads(1, z_.k, first, count, z_.d, parts_.dk, parts_.dk_sum);
      AddOverHeads(2, z_.v, first, count, z_.e, parts_.dv, parts_.dv_sum);
      AddDistances(first, count);
    }
  }

 private:
  // What is added to the scores of a head, and which of them are seen.
  struct Head {
    int64_t number;  // in its batch
    const T* bias;   // or null
    Segments segments;
  };

  Head HeadOf(int64_t batch, int64_t head) const {
    return {head, bias_ ? bias_ + z_.BiasAt(batch, head) : nullptr,
            segments_ ? Segments(segments_ + batch * z_.t) : Segments()};
  }

  static constexpr int64_t kMinSplit = 512;  // keys
  static constexpr int64_t kGrain = 64;  // rows that a thread adds at a time
  static constexpr T kLargeLse = 256;

  Parts<T> Allocate(int64_t wave) const {
    thread_local Scratch scratch;
    int64_t q = z_.t * z_.d, k = z_.s * z_.d, v = z_.s * z_.e;
    int64_t elements =
        wave * (splits_ * (q + z_.Distances()) + k + v) + 2 * (k + v);
    auto* at = reinterpret_cast<T*>(
        scratch.Get(static_cast<size_t>(elements) * sizeof(T)));
    Parts<T> parts = {};
    parts.dq = at;
    parts.dk = parts.dq + wave * splits_ * q;
    parts.dv = parts.dk + wave * k;
    parts.dk_sum = parts.dv + wave * v;
    parts.dv_sum = parts.dk_sum + 2 * k;
    parts.drelative = parts.dv_sum + 2 * v;
    return parts;
  }

  const T* Lse() const { return ctx_.In(in_.y() + 1).template data<T>(); }

  // For example where the mask of a row is the lowest float in all columns.
  static bool IsLarge(T lse) {
    return std::fabs(lse) > kLargeLse && std::isfinite(lse);
  }

  // 1 / the sum of e^(scores - lse) of each row whose lse is large, otherwise
  // 1.
  void FindShares() {
    int64_t heads = z_.b * z_.heads;
    const T* lse = Lse();
    shares_.assign(static_cast<size_t>(heads * z_.t), T{1});
    if (std::none_of(lse, lse + heads * z_.t, IsLarge)) return;
    ParallelTasks(heads, [&](int64_t head) {
      const T* own = lse + head * z_.t;
      if (std::any_of(own, own + z_.t, IsLarge)) {
        FindShares(head, own, shares_.data() + head * z_.t);
      }
    });
  }

  void FindShares(int64_t head, const T* lse, T* shares) const {
    int64_t batch = head / z_.heads;
    head %= z_.heads;
    std::vector<E> read;
    std::vector<T> scores(static_cast<size_t>(kColumns));
    auto k = ReadRows<E>(ctx_.In(in_.operand(1)),
                         z_.k.At(batch, head / z_.Repeats(), 0), z_.s, z_.k.row,
                         z_.d, read);
    PackedMatrix keys;
    keys.Pack(Operand(k, true), z_.d, z_.s);
    const Head own = HeadOf(batch, head);
    for (int64_t row = 0; row < z_.t; ++row) {
      if (!IsLarge(lse[row])) continue;
      auto q = ReadRows<E>(ctx_.In(1), z_.q.At(batch, head, row), 1, z_.q.row,
                           z_.d, read);
      T total = 0;
      int64_t seen = z_.Columns(row + 1);
      for (int64_t column = 0; column < seen; column += kColumns) {
        int64_t n = std::min(kColumns, seen - column);
        keys.Multiply({.m = 1,
                       .n = n,
                       .k = z_.d,
                       .a = Operand(q),
                       .scale = z_.scale,
                       .c = scores.data(),
                       .ldc = kColumns},
                      0, column);
        if (relative_) {
          AddBias(
              scores.data(),
              relative_ + head * z_.Distances() + z_.Origin() - row + column, 1,
              n);
        }
        if (own.bias) {
          AddBias(scores.data(),
                  own.bias + row * z_.bias_step[2] + column * z_.bias_step[3],
                  z_.bias_step[3], n);
        }
        own.segments.Hide(scores.data(), row, column, n,
                          -std::numeric_limits<T>::infinity());
        total += SumOfPowers(scores.data(), lse[row], n);
      }
      shares[row] = 1 / total;
    }
  }

  // The first row that a task computes whose keys begin at `key`.
  int64_t FirstRow(int64_t key) const {
    return z_.FirstRow(key) / kLanes * kLanes;
  }

  // One split of one head, which is number `number` of its wave.
  void RunSplit(int64_t head, int64_t number, int64_t split,
                BackwardMemory<E>& w) const {
    int64_t batch = head / z_.heads;
    head %= z_.heads;
    int64_t begin = split * split_, end = std::min(begin + split_, z_.s);
    T* dk = parts_.dk + (number * z_.s + begin) * z_.d;
    T* dv = parts_.dv + (number * z_.s + begin) * z_.e;
    std::fill_n(dk, (end - begin) * z_.d, T{0});
    std::fill_n(dv, (end - begin) * z_.e, T{0});
    T* drelative =
        parts_.drelative + (number * splits_ + split) * z_.Distances();
    if (drelative_.defined()) std::fill_n(drelative, z_.Distances(), T{0});
    int64_t first = FirstRow(begin);
    if (first >= z_.t) return;  // no row sees these keys
    T* dq = parts_.dq + (number * splits_ + split) * z_.t * z_.d;
    std::fill(dq + first * z_.d, dq + z_.t * z_.d, T{0});
    ReadKeys(batch, head / z_.Repeats(), begin, end, w);
    ReadQueries(batch, head, first, w);
    const Head own = HeadOf(batch, head);
    for (int64_t key = begin; key < end; key += blocks_.rows) {
      int64_t m = std::min(blocks_.rows, end - key), at = key - begin;
      for (int64_t row = FirstRow(key); row < z_.t; row += kColumns) {
        Block x = {key, m, row, std::min(kColumns, z_.t - row)};
        if (!own.segments.MayMeet(x.row, x.n, x.key, x.m)) continue;
        RunKeys(x, at, row - first, own, dk + at * z_.d, dv + at * z_.e, w);
        if (drelative_.defined()) AddDiagonals(x, drelative, w);
        if (Wants(0)) RunRows(x, at, dq + row * z_.d, w);
      }
    }
  }

  void ReadKeys(int64_t batch, int64_t group, int64_t begin, int64_t end,
                BackwardMemory<E>& w) const {
    int64_t size = end - begin;
    w.k_rows =
        ReadRows<E>(ctx_.In(in_.operand(1)), z_.k.At(batch, group, begin), size,
                    z_.k.row, z_.d, w.read_k);
    w.v_rows =
        ReadRows<E>(ctx_.In(in_.operand(2)), z_.v.At(batch, group, begin), size,
                    z_.v.row, z_.e, w.read_v);
    w.k.Pack(Operand(w.k_rows), size, z_.d);
    auto elements = static_cast<size_t>(blocks_.Scores());
    w.scores.resize(elements);
    w.dscores.resize(elements);
    if constexpr (kRounded<E>) {
      w.p.resize(elements);
      w.ds.resize(elements);
    }
  }

  // q and dy from row `first` on.
  void ReadQueries(int64_t batch, int64_t head, int64_t first,
                   BackwardMemory<E>& w) const {
    int64_t size = z_.t - first, at_y = z_.y.At(batch, head, first);
    auto q = ReadRows<E>(ctx_.In(1), z_.q.At(batch, head, first), size,
                         z_.q.row, z_.d, w.read);
    w.q.Pack(Operand(q), size, z_.d);
    w.q_transposed.Pack(Operand(q, true), z_.d, size);
    auto dy = ReadRows<E>(ctx_.In(0), at_y, size, z_.y.row, z_.e, w.read);
    w.dy.Pack(Operand(dy), size, z_.e);
    w.dy_transposed.Pack(Operand(dy, true), z_.e, size);
    int64_t at = (batch * z_.heads + head) * z_.t + first;
    w.lse.assign(Lse() + at, Lse() + at + size);
    w.share.assign(shares_.data() + at, shares_.data() + at + size);
    w.along.resize(static_cast<size_t>(size));
    DotRows(ReadRows<T>(ctx_.In(0), at_y, size, z_.y.row, z_.e, w.read_dy),
            ReadRows<T>(ctx_.In(in_.y()), at_y, size, z_.y.row, z_.e, w.read_y),
            size, z_.e, w.along.data());
  }

  HeadRows<T> Scores(BackwardMemory<E>& w) const {
    return {w.scores.data(), blocks_.Stride()};
  }
  HeadRows<T> ScoreGradients(BackwardMemory<E>& w) const {
    return {w.dscores.data(), blocks_.Stride()};
  }
  HeadRows<E> P(BackwardMemory<E>& w) const {
    if constexpr (kRounded<E>)
      return {w.p.data(), blocks_.Stride()};
    else
      return Scores(w);
  }
  HeadRows<E> Ds(BackwardMemory<E>& w) const {
    if constexpr (kRounded<E>)
      return {w.ds.data(), blocks_.Stride()};
    else
      return ScoreGradients(w);
  }

  // Whether all rows of a block see all its keys.
  bool IsWhole(const Block& x) const {
    return !z_.causal || x.row >= x.key + x.m - 1;
  }

  // Adds relative positions and the bias to the scores of m keys from `key` on
  // and n rows from `row` on.
  void FinishScores(const HeadRows<T>& s, int64_t key, int64_t m, int64_t row,
                    int64_t n, const Head& head) const {
    for (int64_t r = 0; r < m; ++r) {
      T* scores = s.From(r).data;
      if (relative_) {
        AddBias(scores,
                relative_ + head.number * z_.Distances() + z_.Origin() + key +
                    r - row,
                -1, n);
      }
      if (head.bias) {
        AddBias(scores,
                head.bias + row * z_.bias_step[2] + (key + r) * z_.bias_step[3],
                z_.bias_step[2], n);
      }
    }
  }

  // Computes p and ds of a block and adds to the dk and dv of its keys. In the
  // packed operands its rows begin at `packed_row`, its keys at `packed_key`.
  void RunKeys(const Block& x, int64_t packed_key, int64_t packed_row,
               const Head& head, T* dk, T* dv, BackwardMemory<E>& w) const {
    int64_t step = IsWhole(x) ? x.m : blocks_.piece;
    for (int64_t i = 0; i < x.m; i += step) {
      int64_t m = std::min(step, x.m - i), key = x.key + i;
      // Rows before this column do not see the piece.
      int64_t begin =
          z_.causal ? std::max<int64_t>(0, key - x.row) / kLanes * kLanes : 0;
      if (begin >= x.n) break;
      int64_t n = x.n - begin, at = packed_row + begin;
      HeadRows<T> s = Scores(w).From(i), ds = ScoreGradients(w).From(i);
      w.q_transposed.Multiply({.m = m,
                               .n = n,
                               .k = z_.d,
                               .a = Operand(w.k_rows.From(packed_key + i)),
                               .scale = z_.scale,
                               .c = s.Right(begin).data,
                               .ldc = s.ld},
                              0, at);
      w.dy_transposed.Multiply({.m = m,
                                .n = n,
                                .k = z_.e,
                                .a = Operand(w.v_rows.From(packed_key + i)),
                                .c = ds.Right(begin).data,
                                .ldc = ds.ld},
                               0, at);
      FinishScores(s.Right(begin), key, m, x.row + begin, n, head);
      HeadRows<E> p_rows = P(w).From(i), ds_rows = Ds(w).From(i);
      ScoreGradientRows<E>{.scores = s,
                           .dp = ds,
                           .p = p_rows,
                           .ds = ds_rows,
                           .rows = m,
                           .begin = begin,
                           .n = x.n,
                           .hidden = z_.causal ? key - x.row : 0,
                           .step = z_.causal ? 1 : 0,
                           .lse = w.lse.data() + packed_row,
                           .share = w.share.data() + packed_row,
                           .along = w.along.data() + packed_row,
                           .scale = z_.scale}
          .Run();
      for (int64_t r = 0; r < m; ++r) {
        for (const HeadRows<E>& rows : {p_rows, ds_rows}) {
          head.segments.Hide(rows.From(r).Right(begin).data, key + r,
                             x.row + begin, n, E{0});
        }
      }
      RoundRows(z_.round_to, p_rows.Right(begin), m, n);
      RoundRows(z_.round_to, ds_rows.Right(begin), m, n);
      auto add = [&](const PackedMatrix& b, const HeadRows<E>& a, int64_t width,
                     T* to) {
        b.Multiply({.m = m,
                    .n = width,
                    .k = n,
                    .a = Operand(a.Right(begin)),
                    .accumulate = true,
                    .c = to + i * width,
                    .ldc = width},
                   at);
      };
      if (Wants(2)) add(w.dy, p_rows, z_.e, dv);
      if (Wants(1)) add(w.q, ds_rows, z_.d, dk);
    }
  }

  // Adds ds of a block to the sums of its diagonals.
  void AddDiagonals(const Block& x, T* drelative, BackwardMemory<E>& w) const {
    for (int64_t r = 0; r < x.m; ++r) {
      int64_t hidden = z_.causal ? x.key + r - x.row : 0;
      hidden = std::max<int64_t>(0, hidden);
      T* to = drelative + x.row - (x.key + r) + z_.s - 1;
      const E* ds = Ds(w).From(r).data;
      OnBestIsa([=, n = x.n] {
        ONNX_FP8_IVDEP
        for (int64_t j = hidden; j < n; ++j) to[j] += static_cast<T>(ds[j]);
      });
    }
  }

  // Adds to the dq of a block's rows.
  void RunRows(const Block& x, int64_t packed_key, T* dq,
               BackwardMemory<E>& w) const {
    int64_t step = IsWhole(x) ? x.n : blocks_.piece;
    for (int64_t i = 0; i < x.n; i += step) {
      int64_t m = std::min(step, x.n - i);
      int64_t depth = std::min(x.m, z_.Columns(x.row + i + m) - x.key);
      if (depth <= 0) continue;
      HeadRows<E> ds = Ds(w);
      w.k.Multiply({.m = m,
                    .n = z_.d,
                    .k = depth,
                    .a = Operand(ds.Right(i), true),
                    .accumulate = true,
                    .c = dq + i * z_.d,
                    .ldc = z_.d},
                   packed_key);
    }
  }

  // Whether the gradient of part 0, 1 or 2 is wanted: of q, k or v.
  bool Wants(size_t part) const {
    return outputs_[in_.gradient(part)].defined();
  }

  // Writes n finished elements of a part's gradient from element `at` on.
  void Write(size_t part, int64_t at, const T* row, int64_t n,
             AmaxMeter::Part& amax) {
    amax.Add(row, n);
    StoredOut<T> out(outputs_[in_.gradient(part)]);
    if (out.narrow()) {
      out.Write(at, n, row);
    } else {
      std::copy_n(row, n, out.At(at, nullptr));
    }
  }

  static void AddTo(T* sum, const T* row, int64_t n) {
    for (int64_t j = 0; j < n; ++j) sum[j] += row[j];
  }

  void AddOverSplits(int64_t first, int64_t count) {
    if (!Wants(0)) return;
    ParallelFor(count * z_.t, kGrain, [&](int64_t begin, int64_t end) {
      AmaxMeter::Part amax(meters_[0]);
      for (int64_t i = begin; i < end; ++i) {
        int64_t row = i % z_.t, head = first + i / z_.t;
        int64_t split = z_.t * z_.d;
        T* sum = parts_.dq + i / z_.t * splits_ * split + row * z_.d;
        for (int64_t s = 1; s < splits_ && FirstRow(s * split_) <= row; ++s) {
          AddTo(sum, sum + s * split, z_.d);
        }
        Write(0, z_.q.At(head / z_.heads, head % z_.heads, row), sum, z_.d,
              amax);
      }
    });
  }

  // Adds the parts of the wave's heads to drelative. ds holds the scale, which
  // the bias does not have.
  void AddDistances(int64_t first, int64_t count) {
    if (!drelative_.defined()) return;
    int64_t n = z_.Distances();
    T* sums = drelative_.data<T>();
    ParallelFor(n, 16 * kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t part = 0; part < count * splits_; ++part) {
        T* sum = sums + (first + part / splits_) % z_.heads * n;
        const T* from = parts_.drelative + part * n;
        for (int64_t i = begin; i < end; ++i) {
          sum[i] += from[n - 1 - i] / static_cast<T>(z_.scale);
        }
      }
    });
  }

  // The gradient of part 1 or 2, dk or dv, whose rows have n elements: adds the
  // `parts` of the wave's heads to `sum` or, for the last head of a group, to
  // the output.
  void AddOverHeads(size_t part, const HeadLayout& to, int64_t first,
                    int64_t count, int64_t n, T* parts, T* sum) {
    if (!Wants(part)) return;
    int64_t repeats = z_.Repeats(), group = first / repeats;
    int64_t groups = (first + count - 1) / repeats - group + 1;
    ParallelFor(groups * z_.s, kGrain, [&](int64_t begin, int64_t end) {
      AmaxMeter::Part amax(meters_[in_.gradient(part)]);
      for (int64_t at = begin; at < end; ++at) {
        int64_t g = group + at / z_.s, key = at % z_.s;
        int64_t head = std::max(first, g * repeats);
        int64_t stop = std::min(first + count, (g + 1) * repeats);
        T* own_sum = sum + (g % 2 * z_.s + key) * n;
        T* row = parts + ((head - first) * z_.s + key) * n;
        if (head > g * repeats) {
          AddTo(own_sum, row, n);
          row = own_sum;
        }
        for (int64_t h = head + 1; h < stop; ++h) {
          AddTo(row, parts + ((h - first) * z_.s + key) * n, n);
        }
        if (stop == (g + 1) * repeats) {
          Write(part, to.At(g / z_.groups, g % z_.groups, key), row, n, amax);
        } else if (row != own_sum) {
          std::copy_n(row, n, own_sum);
        }
      }
    });
  }

  KernelContext& ctx_;
  const AttentionSizes& z_;
  const AttentionInputs& in_;
  const AttentionBlocks blocks_;
  Tensor outputs_[3];
  AmaxMeter meters_[3];
  const T *relative_ = nullptr, *bias_ = nullptr;
  const int32_t* segments_ = nullptr;
  Tensor drelative_;
  std::vector<T> shares_;           // (B,H,T)
  int64_t split_ = 1, splits_ = 1;  // keys of a split, splits of a head
  Parts<T> parts_ = {};
};

}  // namespace

template <typename E>
void AttentionBackward(KernelContext& ctx, const AttentionSizes& z,
                       const AttentionInputs& in) {
  BackwardPass<E>(ctx, z, in).Run();
}

template void AttentionBackward<float>(KernelContext&, const AttentionSizes&,
                                       const AttentionInputs&);
template void AttentionBackward<double>(KernelContext&, const AttentionSizes&,
                                        const AttentionInputs&);
template void AttentionBackward<KeptBFloat16>(KernelContext&,
                                              const AttentionSizes&,
                                              const AttentionInputs&);

}  // namespace onnx_fp8
