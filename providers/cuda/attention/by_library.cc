// SPDX-License-Identifier: Apache-2.0
#include "providers/cuda/attention/by_library.h"

#include <cmath>

#include "providers/cuda/attention/measure.h"
#include "providers/cuda/core/floats.h"
#include "providers/cuda/core/queue.h"
#include "providers/ops/arguments.h"
#include "providers/ops/divide_up.h"

namespace onnx_fp8::cuda {
namespace {

constexpr int64_t kMostWidth = 128, kWidthStep = 8;

bool FitsLibrary(const AttentionSizes& z, const AttentionInputs& in) {
  return !in.has_bias && !in.has_relative && z.b > 0 && z.t > 0 && z.s > 0 &&
         z.d > 0 && z.d == z.e && z.d <= kMostWidth && z.d % kWidthStep == 0 &&
         z.round_to == DType::kBFloat16 && std::isfinite(z.scale);
}

bool AreBFloat16(const KernelContext& ctx, size_t inputs, size_t outputs) {
  for (size_t i = 0; i < inputs; ++i) {
    if (Operand(ctx, i).dtype() != DType::kBFloat16) return false;
  }
  for (size_t i = 0; i < outputs; ++i) {
    if (!ctx.HasOut(i) || ctx.NarrowOut(i) != DType::kBFloat16) return false;
  }
  return true;
}

LibraryStrides StridesOf(const HeadLayout& x) {
  return {.batch = x.batch, .head = x.head, .row = x.row};
}

constexpr size_t kBytes = 2;  // of an element, bfloat16

// The first element of an operand or result that begins at x.
const void* At(const HeadLayout& layout, const Tensor& x) {
  return static_cast<const char*>(x.raw()) + layout.first * kBytes;
}
void* At(const HeadLayout& layout, const FloatsOut& x) {
  return static_cast<char*>(x.data) + layout.first * kBytes;
}

// The library's problem; nullopt: the node is none.
std::optional<LibraryProblem> ProblemIn(const KernelContext& ctx,
                                        const AttentionSizes& z,
                                        const AttentionInputs& in) {
  bool backward = in.backward();
  bool fits =
      FitsLibrary(z, in) && AreBFloat16(ctx, backward ? in.y() + 1 : in.count(),
                                        backward ? in.count() : 1);
  if (!fits) return std::nullopt;
  LibraryProblem problem = ProblemOf(z, backward);
  if (!backward) problem.keeps_lse = ctx.HasOut(1);
  if (backward && ctx.queue()) {
    problem.deterministic = !QueueOf(ctx).options().nondeterministic;
  }
  return problem;
}

// Runs the problem, if the library can, and measures the results.
template <typename Memory>
bool RunByLibrary(KernelContext& ctx, const LibraryProblem& problem,
                  const Memory& memory, size_t measured) {
  Queue& queue = QueueOf(ctx);
  auto& library = queue.Own<AttentionLibrary>();
  std::optional<size_t> bytes = library.Workspace(problem);
  if (!bytes) return false;
  library.Run(problem, memory, ctx.Workspace(*bytes), queue.stream());
  for (size_t i = 0; i < measured; ++i) MeasureResult(ctx, i);
  return true;
}

}  // namespace

size_t MostWorkspace(const LibraryProblem& p) {
  if (!p.backward) return size_t{1} << 20;
  int64_t t = RoundUp(p.t, 64), s = RoundUp(p.s, 128);
  return static_cast<size_t>(p.b * p.heads *
                             (2 * t * s + 64 * t + 8 * s * p.d));
}

std::optional<size_t> LibraryWorkspace(KernelContext& ctx,
                                       const AttentionSizes& z,
                                       const AttentionInputs& in) {
  std::optional<LibraryProblem> problem = ProblemIn(ctx, z, in);
  if (!problem) return std::nullopt;
  if (!ctx.queue()) return MostWorkspace(*problem);
  return QueueOf(ctx).Own<AttentionLibrary>().Workspace(*problem);
}

LibraryProblem ProblemOf(const AttentionSizes& z, bool backward) {
  return {.backward = backward,
          .b = z.b,
          .t = z.t,
          .s = z.s,
          .heads = z.heads,
          .groups = z.groups,
          .d = z.d,
          .scale = z.scale,
          .causal = z.causal,
          .keeps_lse = backward,
          .q = StridesOf(z.q),
          .k = StridesOf(z.k),
          .v = StridesOf(z.v),
          .y = StridesOf(z.y)};
}

bool ForwardByLibrary(KernelContext& ctx, const AttentionSizes& z,
                      const AttentionInputs& in) {
  std::optional<LibraryProblem> problem = ProblemIn(ctx, z, in);
  if (!problem) return false;
  LibraryForward memory = {.q = At(z.q, ctx.In(in.operand(0))),
                           .k = At(z.k, ctx.In(in.operand(1))),
                           .v = At(z.v, ctx.In(in.operand(2))),
                           .y = FloatsTo(ctx, 0, z.y_shape).data,
                           .lse = nullptr};
  if (problem->keeps_lse) {
    Tensor& lse = ctx.Out(1, DType::kFloat, {z.b, z.heads, z.t});
    memory.lse = static_cast<float*>(lse.raw());
  }
  return RunByLibrary(ctx, *problem, memory, 1);
}

bool BackwardByLibrary(KernelContext& ctx, const AttentionSizes& z,
                       const AttentionInputs& in) {
  std::optional<LibraryProblem> problem = ProblemIn(ctx, z, in);
  if (!problem) return false;
  FloatsOut gradients[3];
  for (size_t i = 0; i < in.count(); ++i) {
    gradients[i] = FloatsTo(ctx, i, ctx.In(i + 1).shape());
  }
  LibraryBackward memory = {
      .dy = ctx.In(0).raw(),
      .q = At(z.q, ctx.In(in.operand(0))),
      .k = At(z.k, ctx.In(in.operand(1))),
      .v = At(z.v, ctx.In(in.operand(2))),
      .y = ctx.In(in.y()).raw(),
      .lse = static_cast<const float*>(Operand(ctx, in.y() + 1).raw()),
      .dq = At(z.q, gradients[in.gradient(0)]),
      .dk = At(z.k, gradients[in.gradient(1)]),
      .dv = At(z.v, gradients[in.gradient(2)])};
  return RunByLibrary(ctx, *problem, memory, in.count());
}

}  // namespace onnx_fp8::cuda
