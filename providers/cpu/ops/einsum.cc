// SPDX-License-Identifier: Apache-2.0
//
// Two float operands go through the matrix product if possible; all other cases
// follow the definition.
#include "providers/ops/einsum.h"

#include <type_traits>

#include "providers/cpu/dispatch.h"
#include "providers/cpu/gemm/gemm.h"
#include "providers/cpu/strided.h"
#include "providers/cpu/tasks.h"
#include "providers/kernel.h"
#include "providers/ops/arguments.h"

namespace onnx_fp8 {
namespace {

// offsets[k][i]: the place in operand k of index i of loops first … last-1.
std::vector<std::vector<int64_t>> Offsets(const EinsumLoops& loops,
                                          size_t first, size_t last) {
  std::span<const int64_t> sizes =
      std::span(loops.size).subspan(first, last - first);
  std::vector<std::vector<int64_t>> offsets;
  for (const auto& all : loops.strides) {
    auto strides = std::span(all).subspan(first, last - first);
    auto& list = offsets.emplace_back();
    int64_t count = NumElements(sizes);
    if (count == 0) continue;
    Odometer<1> at(sizes, {strides});
    for (int64_t i = 0; i < count; ++i, at.Next()) {
      list.push_back(at.offset(0));
    }
  }
  return offsets;
}

// Σ over i < n of the product of all operands at from[k] + i * step[k].
template <typename Sum, typename T>
Sum SumOfProducts(const std::vector<const T*>& from,
                  const std::vector<int64_t>& step, int64_t n) {
  Sum sum = 0;
  if (from.size() == 2) {
    const T *a = from[0], *b = from[1];
    int64_t sa = step[0], sb = step[1];
    for (int64_t i = 0; i < n; ++i) {
      sum += static_cast<Sum>(a[i * sa]) * static_cast<Sum>(b[i * sb]);
    }
    return sum;
  }
  for (int64_t i = 0; i < n; ++i) {
    Sum product = 1;
    for (size_t k = 0; k < from.size(); ++k) {
      product *= static_cast<Sum>(from[k][i * step[k]]);
    }
    sum += product;
  }
  return sum;
}

template <typename T>
void Evaluate(const std::vector<Tensor>& operands, const EinsumLoops& loops,
              T* y) {
  // Integers wrap around.
  using Sum = std::conditional_t<std::is_integral_v<T>, uint64_t, double>;
  size_t count = operands.size(), rank = loops.size.size();
  // The last summed loop uses strides, the loops around it use tables.
  bool sums = rank > loops.result_rank;
  int64_t n = sums ? loops.size.back() : 1;
  auto around = Offsets(loops, loops.result_rank, sums ? rank - 1 : rank);
  std::vector<int64_t> step(count, 0);
  for (size_t k = 0; sums && k < count; ++k) step[k] = loops.strides[k].back();
  Shape outer = loops.Result();
  auto work = n * static_cast<int64_t>(around[0].size());
  ParallelFor(
      NumElements(outer), RowsPerTask(work), [&](int64_t begin, int64_t end) {
        std::vector<const T*> from(count);
        std::vector<Odometer<1>> at;
        for (const auto& strides : loops.strides) {
          std::span<const int64_t> all = strides;
          at.emplace_back(outer, std::array{all.first(outer.size())}, begin);
        }
        for (int64_t i = begin; i < end; ++i) {
          Sum sum = 0;
          for (size_t j = 0; j < around[0].size(); ++j) {
            for (size_t k = 0; k < count; ++k) {
              from[k] = static_cast<const T*>(operands[k].raw()) +
                        at[k].offset(0) + around[k][j];
            }
            sum += SumOfProducts<Sum>(from, step, n);
          }
          y[i] = static_cast<T>(sum);
          for (auto& place : at) place.Next();
        }
      });
}

void EvaluateAsProduct(const Tensor& a, const Tensor& b,
                       const EinsumProduct& product, Tensor& y) {
  size_t width = ByteSize(y.dtype());
  auto pack = [&](const LoopGroup& group, const Tensor& x,
                  const std::vector<int64_t>& strides) {
    Tensor packed = Tensor::Allocate(x.dtype(), group.size);
    CopyStrided(group.size, width, x.raw(), strides, packed.raw(),
                Strides(group.size));
    return packed;
  };
  const LoopGroup& of_y = product.of_y;
  Tensor pa = pack(product.of_a, a, product.of_a.a);
  Tensor pb = pack(product.of_b, b, product.of_b.b);
  Tensor py = Tensor::Allocate(y.dtype(), of_y.size);
  GemmProblem problem = {
      .m = product.m, .n = product.n, .k = product.k, .c = py.raw()};
  problem.a = {pa.raw(), y.dtype(), problem.k, false};
  problem.b = {pb.raw(), y.dtype(), problem.n, false};
  std::vector<GemmOffsets> offsets;
  for (int64_t i = 0; i < product.batch; ++i) {
    offsets.push_back({i * problem.m * problem.k, i * problem.k * problem.n,
                       i * problem.m * problem.n});
  }
  BatchedGemm(problem, offsets);
  CopyStrided(of_y.size, width, py.raw(), Strides(of_y.size), y.raw(), of_y.y);
}

void Einsum(KernelContext& ctx) {
  EinsumLoops loops = EinsumLoopsOf(ctx);
  DType dtype = Operand(ctx, 0).dtype();
  std::vector<Tensor> operands;
  for (size_t i = 0; i < ctx.num_inputs(); ++i) {
    CheckSameDType(ctx, ctx.In(0), ctx.In(i));
    operands.push_back(ctx.In(i));
  }
  Tensor& y = ctx.Out(0, dtype, loops.Result());
  if (y.size() == 0) return;
  std::optional<EinsumProduct> product = EinsumProductOf(loops);
  if (IsFloat(dtype) && product) {
    return EvaluateAsProduct(operands[0], operands[1], *product, y);
  }
  DispatchNumeric(dtype, ctx.Where(), [&]<typename T>() {
    Evaluate(operands, loops, y.data<T>());
  });
}

}  // namespace

void RegisterEinsum(KernelRegistry& r) { r.Add("Einsum", Widened<Einsum>); }

}  // namespace onnx_fp8
