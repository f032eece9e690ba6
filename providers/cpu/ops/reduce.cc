// SPDX-License-Identifier: Apache-2.0
//
// Reductions over any set of axes. Sums are computed in double and in blocks of
// a fixed size, so a result does not depend on the number of threads.
#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include "providers/cpu/elementwise.h"
#include "providers/cpu/math/elementary.h"
#include "providers/cpu/math/ivdep.h"
#include "providers/cpu/math/lanes.h"
#include "providers/cpu/math/vector_math.h"
#include "providers/kernel.h"
#include "providers/ops/broadcast.h"
#include "providers/ops/divide_up.h"
#include "providers/ops/reduction.h"

namespace onnx_fp8 {
namespace {

constexpr int64_t kChunk = 16384;      // elements of a row per partial result
constexpr int64_t kRows = 256;         // rows per partial result of a column
constexpr int64_t kColumnBlock = 256;  // columns side by side

// acc = Op over x[0 … n) and acc.
template <typename Op, typename T, typename Acc>
void ReduceRow(const T* x, int64_t n, Acc* acc) {
  constexpr int64_t kWidth = Op::kWidth;
  if (n < 2 * kWidth) {
    for (int64_t i = 0; i < n; ++i) *acc = Op::Add(*acc, x[i]);
    return;
  }
  OnBestIsa([=] {
    Acc lane[kWidth];
    for (Acc& a : lane) a = Op::template Init<Acc>();
    int64_t i = 0;
    for (; i + kWidth <= n; i += kWidth) {
      for (int64_t j = 0; j < kWidth; ++j) lane[j] = Op::Add(lane[j], x[i + j]);
    }
    for (; i < n; ++i) lane[0] = Op::Add(lane[0], x[i]);
    for (Acc a : lane) *acc = Op::Merge(*acc, a);
  });
}

// Op over elements [from, to) of the elements that a result reduces; x is the
// first one.
template <typename Op, typename Acc, typename T>
Acc ReduceResult(const T* x, const BroadcastPlan& reduced, int64_t from,
                 int64_t to) {
  Acc acc = Op::template Init<Acc>();
  if (reduced.sizes.size() == 1) {
    ReduceRow<Op>(x + from, to - from, &acc);
    return acc;
  }
  ForRuns(reduced, from, to, [&](const int64_t* offset, int64_t, int64_t n) {
    ReduceRow<Op>(x + *offset, n, &acc);
  });
  return acc;
}

// partial[at] for results that reduce rows: `chunks` partial results each.
template <typename Op, typename T, typename Acc>
void ReduceRows(const T* x, const ReductionLayout& l, int64_t chunks,
                Acc* partial) {
  int64_t n = l.reduced.n;
  int64_t step = l.kept.strides.back()[0];
  int64_t work = std::min(std::max<int64_t>(n, 1), kChunk);
  // Tasks are the chunks of one result after the other.
  auto task = [&](int64_t begin, int64_t end) {
    int64_t first = begin / chunks;
    int64_t last = DivideUp(end, chunks);
    auto run = [&](const int64_t* offset, int64_t at, int64_t count) {
      for (int64_t i = 0; i < count; ++i) {
        int64_t result = (at + i) * chunks;
        int64_t from = std::max(begin - result, int64_t{0});
        int64_t to = std::min(end - result, chunks);
        for (int64_t c = from; c < to; ++c) {
          partial[result + c] =
              ReduceResult<Op, Acc>(x + *offset + i * step, l.reduced,
                                    c * kChunk, std::min((c + 1) * kChunk, n));
        }
      }
    };
    ForRuns(l.kept, first, last, run);
  };
  ParallelFor(l.kept.n * chunks, RowsPerTask(work), task);
}

// The same for results that lie side by side in memory: partial[chunk][result].
template <typename Op, typename T, typename Acc>
void ReduceColumns(const T* x, const ReductionLayout& l, int64_t chunks,
                   Acc* partial) {
  int64_t width = l.kept.sizes.back();
  int64_t blocks = DivideUp(width, kColumnBlock);
  int64_t stride = l.reduced.strides.back()[0];
  int64_t work = std::min(width, kColumnBlock) * std::min(l.reduced.n, kRows);
  ParallelFor(
      l.kept.n / width * blocks * chunks, RowsPerTask(work),
      [&](int64_t begin, int64_t end) {
        for (int64_t at = begin; at < end; ++at) {
          int64_t from = at % chunks * kRows;
          int64_t to = std::min(from + kRows, l.reduced.n);
          int64_t column = at / chunks % blocks * kColumnBlock;
          int64_t columns = std::min(kColumnBlock, width - column);
          int64_t result = at / chunks / blocks * width + column;
          Acc acc[kColumnBlock];
          std::fill_n(acc, columns, Op::template Init<Acc>());
          const T* base = x;
          ForRuns(l.kept, result, result + 1,
                  [&](const int64_t* offset, int64_t, int64_t) {
                    base += *offset;
                  });
          ForRuns(l.reduced, from, to,
                  [&](const int64_t* offset, int64_t, int64_t rows) {
                    const T* row = base + *offset;
                    Acc* sums = acc;
                    OnBestIsa([=] {
                      for (int64_t r = 0; r < rows; ++r) {
                        ONNX_FP8_IVDEP
                        for (int64_t j = 0; j < columns; ++j) {
                          sums[j] = Op::Add(sums[j], row[r * stride + j]);
                        }
                      }
                    });
                  });
          std::copy_n(acc, columns, partial + at % chunks * l.kept.n + result);
        }
      });
}

// y[result] = finish(reduction).
template <typename Op, typename Acc, typename T, typename Y, typename Finish>
void Reduce(const T* x, const ReductionLayout& l, Y* y, Finish finish) {
  if (l.kept.n == 0) return;
  int64_t chunk = l.inner_reduced ? kChunk : kRows;
  int64_t chunks = std::max<int64_t>(DivideUp(l.reduced.n, chunk), 1);
  std::vector<Acc> partial(static_cast<size_t>(l.kept.n * chunks));
  // The place of partial result c of a result.
  int64_t result_step = l.inner_reduced ? chunks : 1;
  int64_t chunk_step = l.inner_reduced ? 1 : l.kept.n;
  if (l.inner_reduced) {
    ReduceRows<Op>(x, l, chunks, partial.data());
  } else {
    ReduceColumns<Op>(x, l, chunks, partial.data());
  }
  const Acc* from = partial.data();
  ParallelFor(l.kept.n, RowsPerTask(chunks), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      Acc acc = from[i * result_step];
      for (int64_t c = 1; c < chunks; ++c) {
        acc = Op::Merge(acc, from[i * result_step + c * chunk_step]);
      }
      y[i] = static_cast<Y>(finish(acc));
    }
  });
}

// --- what is reduced --------------------------------------------------------

// Integers are summed with wrap-around, in uint64.
template <typename T>
using Sum = std::conditional_t<std::is_floating_point_v<T>, double, uint64_t>;

struct SumOp {
  static constexpr int64_t kWidth = kLanes;
  template <typename Acc>
  static Acc Init() {
    return 0;
  }
  template <typename Acc, typename T>
  static Acc Add(Acc acc, T x) {
    return acc + static_cast<Acc>(x);
  }
  template <typename Acc>
  static Acc Merge(Acc a, Acc b) {
    return a + b;
  }
};
struct AbsOp : SumOp {
  template <typename Acc, typename T>
  static Acc Add(Acc acc, T x) {
    auto v = static_cast<Acc>(x);
    if constexpr (std::is_floating_point_v<Acc>) return acc + std::fabs(v);
    return x < 0 ? acc - v : acc + v;
  }
};
struct SquareOp : SumOp {
  template <typename Acc, typename T>
  static Acc Add(Acc acc, T x) {
    return acc + static_cast<Acc>(x) * static_cast<Acc>(x);
  }
};
struct ProdOp {
  static constexpr int64_t kWidth = kLanes;
  template <typename Acc>
  static Acc Init() {
    return 1;
  }
  template <typename Acc, typename T>
  static Acc Add(Acc acc, T x) {
    return acc * static_cast<Acc>(x);
  }
  template <typename Acc>
  static Acc Merge(Acc a, Acc b) {
    return a * b;
  }
};
// Once acc is NaN it stays NaN, because comparisons with NaN are false. || in
// place of | would keep loops from being vectorized.
struct Largest {
  static constexpr int64_t kWidth = kCompareLanes;
  template <typename T>
  static T Init() {
    using Limits = std::numeric_limits<T>;
    return Limits::has_infinity ? static_cast<T>(-Limits::infinity())
                                : Limits::lowest();
  }
  template <typename T>
  static T Add(T acc, T x) {
    return ((x > acc) | (x != x)) ? x : acc;
  }
  template <typename T>
  static T Merge(T a, T b) {
    return Add(a, b);
  }
};
struct Smallest {
  static constexpr int64_t kWidth = kCompareLanes;
  template <typename T>
  static T Init() {
    using Limits = std::numeric_limits<T>;
    return Limits::has_infinity ? Limits::infinity() : Limits::max();
  }
  template <typename T>
  static T Add(T acc, T x) {
    return ((x < acc) | (x != x)) ? x : acc;
  }
  template <typename T>
  static T Merge(T a, T b) {
    return Add(a, b);
  }
};

// --- ops --------------------------------------------------------------------

// fn.operator()<T>(x, layout, y) with the C++ type of the operand x and of the
// result. Narrow integers are reduced as int64, which saves code: their sums
// wrap around to the same bits.
template <typename Fn>
void ReduceAs(KernelContext& ctx, Fn fn) {
  const Tensor& narrow = Operand(ctx, 0);
  Tensor x = WideInteger(narrow);
  ReductionLayout l = ReductionOf(ctx, x);
  bool same = x.dtype() == narrow.dtype();
  Tensor y = same ? Result(ctx, 0, x.dtype(), l.shape)
                  : Tensor::Allocate(x.dtype(), l.shape);
  DispatchWide(x.dtype(), ctx.Where(), [&]<typename T>() {
    fn.template operator()<T>(x.data<T>(), l, y.data<T>());
  });
  if (!same) SetResult(ctx, 0, ConvertTo(y, narrow.dtype()));
}

// Sums of floats that are kept in 16 bits.
template <typename Op, typename Finish>
void ReduceKept(KernelContext& ctx, Finish finish) {
  const Tensor& x = Operand(ctx, 0);
  ReductionLayout l = ReductionOf(ctx, x);
  float* y = Result(ctx, 0, DType::kFloat, l.shape).data<float>();
  if (x.dtype() == DType::kBFloat16) {
    Reduce<Op, double>(static_cast<const KeptBFloat16*>(x.raw()), l, y, finish);
  } else {
    Reduce<Op, double>(static_cast<const KeptFloat16*>(x.raw()), l, y, finish);
  }
}

template <typename Op>
void ReduceBy(KernelContext& ctx) {
  if constexpr (std::is_same_v<Op, SumOp>) {
    if (IsHalf(Operand(ctx, 0).dtype())) {
      return ReduceKept<Op>(ctx, [](double v) { return v; });
    }
  }
  ReduceAs(ctx, []<typename T>(const T* x, const ReductionLayout& l, T* y) {
    Reduce<Op, Sum<T>>(x, l, y, [](auto v) { return v; });
  });
}

void ReduceMean(KernelContext& ctx) {
  ReduceAs(ctx, [&]<typename T>(const T* x, const ReductionLayout& l, T* y) {
    int64_t n = l.reduced.n;
    Check(n > 0 || !std::is_integral_v<T>, "[", ctx.Where(),
          "] expected integers to average, got shape ",
          ToString(ctx.In(0).shape()));
    Reduce<SumOp, Sum<T>>(x, l, y, [=](auto v) {
      if constexpr (std::is_floating_point_v<T>) {
        return v / static_cast<double>(n);
      } else if constexpr (std::is_signed_v<T>) {
        return static_cast<int64_t>(v) / n;
      } else {
        return v / static_cast<uint64_t>(n);
      }
    });
  });
}

// y = finish(sum), where the sum is in double also for integers.
template <typename Op, typename Finish>
void ReduceInDouble(KernelContext& ctx, Finish finish) {
  DType dtype = Operand(ctx, 0).dtype();
  Tensor x = WideInteger(ctx.In(0));
  ReductionLayout l = ReductionOf(ctx, x);
  Tensor y = Result(ctx, 0, dtype, l.shape);
  DispatchWide(x.dtype(), ctx.Where(), [&]<typename T>() {
    if constexpr (std::is_floating_point_v<T>) {
      Reduce<Op, double>(x.data<T>(), l, y.data<T>(), finish);
    } else {
      Tensor exact = Tensor::Allocate(DType::kDouble, l.shape);
      Reduce<Op, double>(x.data<T>(), l, exact.data<double>(), finish);
      // Saturates values for which C leaves the conversion undefined.
      CopyBytes(ConvertTo(exact, dtype), y);
    }
  });
}

void ReduceL2(KernelContext& ctx) {
  ReduceInDouble<SquareOp>(ctx, [](double v) { return std::sqrt(v); });
}
void ReduceLogSum(KernelContext& ctx) {
  ReduceInDouble<SumOp>(ctx, [](double v) { return std::log(v); });
}

// log(sum(e^x)) = m + log(sum(e^(x-m))), where m is the largest x, or 0 if that
// is not finite.
template <typename T>
void LogSumExp(const Tensor& x, const ReductionLayout& l, T* y) {
  std::vector<T> largest(static_cast<size_t>(l.kept.n));
  T* m = largest.data();
  Reduce<Largest, T>(x.data<T>(), l, m,
                     [](T v) { return std::isinf(v) ? T{0} : v; });
  Tensor e = Tensor::Allocate(x.dtype(), x.shape());
  // The results' walk over x gives the place where each result's elements
  // start.
  ParallelFor(
      l.kept.n, RowsPerTask(l.reduced.n), [&](int64_t begin, int64_t end) {
        int64_t step = l.kept.strides.back()[0];
        int64_t inner = l.reduced.strides.back()[0];
        ForRuns(l.kept, begin, end,
                [&](const int64_t* start, int64_t at, int64_t count) {
                  for (int64_t i = 0; i < count; ++i) {
                    ForRuns(l.reduced, 0, l.reduced.n,
                            [&](const int64_t* offset, int64_t, int64_t n) {
                              int64_t from = *start + i * step + *offset;
                              const T* in = x.data<T>() + from;
                              T* out = e.data<T>() + from;
                              if (inner == 1) {
                                VectorExpShifted(in, m[at + i], out, n);
                                return;
                              }
                              for (int64_t k = 0; k < n; ++k) {
                                out[k * inner] =
                                    math::Exp(in[k * inner] - m[at + i]);
                              }
                            });
                  }
                });
      });
  Reduce<SumOp, double>(e.data<T>(), l, y,
                        [](double v) { return std::log(v); });
  for (int64_t i = 0; i < l.kept.n; ++i) y[i] += m[i];
}

void ReduceLogSumExp(KernelContext& ctx) {
  const Tensor& x = Operand(ctx, 0);
  ReductionLayout l = ReductionOf(ctx, x);
  Tensor y = Result(ctx, 0, x.dtype(), l.shape);
  if (IsInteger(x.dtype())) {
    Tensor exact = Tensor::Allocate(DType::kDouble, l.shape);
    LogSumExp<double>(ConvertTo(x, DType::kDouble), l, exact.data<double>());
    CopyBytes(ConvertTo(exact, x.dtype()), y);
    return;
  }
  DispatchFloat(x.dtype(), ctx.Where(),
                [&]<typename T>() { LogSumExp<T>(x, l, y.data<T>()); });
}

template <typename Op>
void ReduceExtreme(KernelContext& ctx) {
  const Tensor& x = Operand(ctx, 0);
  if (x.dtype() == DType::kBool) {
    ReductionLayout l = ReductionOf(ctx, x);
    Tensor y = Result(ctx, 0, DType::kBool, l.shape);
    // As bytes of 0 or 1, whichever byte stands for true in x.
    std::vector<uint8_t> bytes(x.bytes());
    Map(static_cast<const uint8_t*>(x.raw()), bytes.data(), x.size(),
        [](uint8_t v) { return static_cast<uint8_t>(v != 0); });
    Reduce<Op, uint8_t>(bytes.data(), l, y.data<bool>(),
                        [](uint8_t v) { return v != 0; });
    return;
  }
  if (x.size() == 0 && IsInteger(x.dtype())) {
    // The extreme of no elements is the dtype's, not int64's.
    Tensor y = Result(ctx, 0, x.dtype(), ReductionOf(ctx, x).shape);
    DispatchNumeric(x.dtype(), ctx.Where(), [&]<typename T>() {
      std::fill_n(y.data<T>(), y.size(), Op::template Init<T>());
    });
    return;
  }
  ReduceAs(ctx, []<typename T>(const T* from, const ReductionLayout& l, T* to) {
    Reduce<Op, T>(from, l, to, [](T v) { return v; });
  });
}

}  // namespace

void RegisterReduce(KernelRegistry& r) {
  r.Add("ReduceSum", Widened<ReduceBy<SumOp>>, {.narrow_in = {0}});
  r.Add("ReduceMean", Widened<ReduceMean>);
  r.Add("ReduceProd", Widened<ReduceBy<ProdOp>>);
  r.Add("ReduceL1", Widened<ReduceBy<AbsOp>>);
  r.Add("ReduceSumSquare", Widened<ReduceBy<SquareOp>>);
  r.Add("ReduceL2", Widened<ReduceL2>);
  r.Add("ReduceLogSum", Widened<ReduceLogSum>);
  r.Add("ReduceLogSumExp", Widened<ReduceLogSumExp>);
  r.Add("ReduceMax", Widened<ReduceExtreme<Largest>>);
  r.Add("ReduceMin", Widened<ReduceExtreme<Smallest>>);
}

}  // namespace onnx_fp8
