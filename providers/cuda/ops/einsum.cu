// SPDX-License-Identifier: Apache-2.0
//
// Two float operands go through cuBLASLt if possible. Traffic: the product's;
// operands and a result whose loops have another order are copied once more.
// All other cases follow the definition, by a thread for each element of the
// result: each operand is read as often as it takes part, mostly from a cache,
// and sums are the CPU's, in double and in its order.
#include <type_traits>

#include "providers/cuda/core/broadcast.h"
#include "providers/cuda/gemm/product.h"
#include "providers/cuda/ops/strided.h"
#include "providers/kernel.h"
#include "providers/ops/arguments.h"
#include "providers/ops/einsum.h"

namespace onnx_fp8::cuda {
namespace {

// ---- the definition

constexpr int kMostOperands = 4;
constexpr int kMostLoops = 12;

template <typename T>
struct Sums {
  int operands, result_loops, loops;
  int64_t results, terms;  // terms of each sum
  int64_t inner;           // terms of the last loop, 1 if nothing is summed
  int64_t sizes[kMostLoops];
  int64_t strides[kMostOperands][kMostLoops];
  const T* x[kMostOperands];
};

// Adds to the operands' offsets the place of `index` in loops first … last-1.
template <typename T>
__device__ void Advance(const Sums<T>& s, int first, int last, int64_t index,
                        int64_t (&offsets)[kMostOperands]) {
  for (int l = last - 1; l >= first; --l) {
    int64_t at = index % s.sizes[l];
    index /= s.sizes[l];
    for (int k = 0; k < kMostOperands; ++k) offsets[k] += at * s.strides[k][l];
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads) SumKernel(Sums<T> s, T* y) {
  // Integers wrap around.
  using Sum = std::conditional_t<std::is_integral_v<T>, uint64_t, double>;
  int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= s.results) return;
  int64_t start[kMostOperands] = {};
  Advance(s, 0, s.result_loops, at, start);
  Sum sum = 0;
  for (int64_t run = 0; run < s.terms; run += s.inner) {
    Sum part = 0;
    for (int64_t i = 0; i < s.inner; ++i) {
      int64_t offsets[kMostOperands];
      for (int k = 0; k < kMostOperands; ++k) offsets[k] = start[k];
      Advance(s, s.result_loops, s.loops, run + i, offsets);
      Sum product = 1;
      for (int k = 0; k < kMostOperands; ++k) {  // stays in registers
        if (k < s.operands) product *= static_cast<Sum>(s.x[k][offsets[k]]);
      }
      part += product;
    }
    sum += part;
  }
  y[at] = static_cast<T>(sum);
}

template <typename T>
void Evaluate(const KernelContext& ctx, const EinsumLoops& loops, T* y) {
  size_t operands = ctx.num_inputs();
  Check(operands <= kMostOperands && loops.size.size() <= kMostLoops, "[",
        ctx.Where(), "] expected at most ", kMostOperands, " operands and ",
        kMostLoops, " labels on a GPU, got ", operands, " and ",
        loops.size.size());
  bool sums = loops.size.size() > loops.result_rank;
  int64_t results = NumElements(loops.Result());
  Sums<T> s = {static_cast<int>(operands),
               static_cast<int>(loops.result_rank),
               static_cast<int>(loops.size.size()),
               results,
               1,
               sums ? loops.size.back() : 1,
               {},
               {},
               {}};
  for (size_t l = 0; l < loops.size.size(); ++l) {
    s.sizes[l] = loops.size[l];
    if (l >= loops.result_rank) s.terms *= loops.size[l];
    for (size_t k = 0; k < operands; ++k) s.strides[k][l] = loops.strides[k][l];
  }
  for (size_t k = 0; k < operands; ++k) {
    s.x[k] = static_cast<const T*>(ctx.In(k).raw());
  }
  Launch(SumKernel<T>, BlocksFor(results), kThreads, 0, QueueOf(ctx).stream(),
         s, y);
}

// ---- the product

bool IsDense(const LoopGroup& group, const std::vector<int64_t>& strides) {
  return strides == Strides(group.size);
}

// The kernel's workspace: cuBLASLt's, and behind it the copies that are dense.
struct Copies {
  size_t a, b, y;  // bytes; 0: no copy
  size_t bytes() const { return kProductWorkspace + a + b + y; }
};

Copies CopiesOf(const EinsumProduct& p) {
  auto bytes = [](bool dense, int64_t elements) {
    return dense ? 0 : static_cast<size_t>(RoundUp(elements * 4, 256));
  };
  return {bytes(IsDense(p.of_a, p.of_a.a), p.batch * p.m * p.k),
          bytes(IsDense(p.of_b, p.of_b.b), p.batch * p.k * p.n),
          bytes(IsDense(p.of_y, p.of_y.y), p.batch * p.m * p.n)};
}

void EvaluateAsProduct(KernelContext& ctx, const EinsumProduct& p, Tensor& y) {
  const Tensor &a = ctx.In(0), &b = ctx.In(1);
  Copies copies = CopiesOf(p);
  Queue& queue = QueueOf(ctx);
  auto* workspace = static_cast<char*>(ctx.Workspace(copies.bytes()));
  char* at = workspace + kProductWorkspace;
  const void *pa = a.raw(), *pb = b.raw();
  void* py = y.raw();
  auto pack = [&](const Tensor& x, const LoopGroup& group,
                  const std::vector<int64_t>& strides, void* to) {
    CopyStrided(ctx, group.size, 4, x.raw(), strides, to, Strides(group.size));
    return to;
  };
  if (copies.a > 0) pa = pack(a, p.of_a, p.of_a.a, at);
  if (copies.b > 0) pb = pack(b, p.of_b, p.of_b.b, at + copies.a);
  if (copies.y > 0) py = at + copies.a + copies.b;
  queue.Own<Products>().Multiply({.m = p.m,
                                  .n = p.n,
                                  .k = p.k,
                                  .a = {.data = pa, .batch_stride = p.m * p.k},
                                  .b = {.data = pb, .batch_stride = p.k * p.n},
                                  .y = py,
                                  .batch = p.batch,
                                  .y_batch_stride = p.m * p.n},
                                 workspace, queue);
  if (copies.y == 0) return;
  CopyStrided(ctx, p.of_y.size, 4, py, Strides(p.of_y.size), y.raw(), p.of_y.y);
}

size_t EinsumWorkspace(KernelContext& ctx) {
  if (Operand(ctx, 0).dtype() != DType::kFloat) return 0;
  std::optional<EinsumProduct> product = EinsumProductOf(EinsumLoopsOf(ctx));
  return product ? CopiesOf(*product).bytes() : 0;
}

void Einsum(KernelContext& ctx) {
  EinsumLoops loops = EinsumLoopsOf(ctx);
  DType dtype = Operand(ctx, 0).dtype();
  for (size_t i = 0; i < ctx.num_inputs(); ++i) {
    CheckSameDType(ctx, ctx.In(0), Operand(ctx, i));
  }
  Tensor& y = ctx.Out(0, dtype, loops.Result());
  if (y.size() == 0) return;
  std::optional<EinsumProduct> product = EinsumProductOf(loops);
  if (dtype == DType::kFloat && product) {
    return EvaluateAsProduct(ctx, *product, y);
  }
  Check(!IsHalf(dtype), "[", ctx.Where(), "] expected float, got ",
        Name(dtype));
  ForNumeric(dtype, ctx.Where(), [&]<typename T>() {
    Evaluate(ctx, loops, static_cast<T*>(y.raw()));
  });
}

}  // namespace

void RegisterEinsum(KernelRegistry& r) {
  r.Add("Einsum", Einsum, {.workspace = EinsumWorkspace});
}

}  // namespace onnx_fp8::cuda
