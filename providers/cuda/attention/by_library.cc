// SPDX-License-Identifier: Apache-2.0
#include "providers/cuda/attention/by_library.h"

#include <cmath>

#include "providers/arguments.h"
#include "providers/cuda/attention/measure.h"
#include "providers/cuda/core/floats.h"
#include "providers/cuda/core/queue.h"

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

// (B,rows,heads·d), as linear layers leave it.
LibraryStrides StridesOf(int64_t rows, int64_t heads, int64_t d) {
  return {.batch = rows * heads * d, .head = d, .row = heads * d};
}

// Runs the problem, if the library can, and measures the results.
template <typename Memory>
bool RunByLibrary(KernelContext& ctx, const LibraryProblem& problem,
                  const Memory& memory, size_t measured) {
  Queue& queue = QueueOf(ctx);
  auto& library = queue.Own<AttentionLibrary>();
  std::optional<size_t> bytes = library.Workspace(problem);
  if (!bytes) return false;
  library.Run(problem, memory, queue.Scratch(*bytes), queue.stream());
  for (size_t i = 0; i < measured; ++i) MeasureResult(ctx, i);
  return true;
}

}  // namespace

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
          .q = StridesOf(z.t, z.heads, z.d),
          .k = StridesOf(z.s, z.groups, z.d),
          .v = StridesOf(z.s, z.groups, z.d),
          .y = StridesOf(z.t, z.heads, z.d)};
}

bool ForwardByLibrary(KernelContext& ctx, const AttentionSizes& z,
                      const AttentionInputs& in) {
  if (!FitsLibrary(z, in) || !AreBFloat16(ctx, 3, 1)) return false;
  LibraryProblem problem = ProblemOf(z, false);
  problem.keeps_lse = ctx.HasOut(1);
  LibraryForward memory = {
      .q = ctx.In(0).raw(),
      .k = ctx.In(1).raw(),
      .v = ctx.In(2).raw(),
      .y = FloatsTo(ctx, 0, {z.b, z.t, z.heads * z.e}).data,
      .lse = nullptr};
  if (problem.keeps_lse) {
    Tensor& lse = ctx.Out(1, DType::kFloat, {z.b, z.heads, z.t});
    memory.lse = static_cast<float*>(lse.raw());
  }
  return RunByLibrary(ctx, problem, memory, 1);
}

bool BackwardByLibrary(KernelContext& ctx, const AttentionSizes& z,
                       const AttentionInputs& in) {
  if (!FitsLibrary(z, in) || !AreBFloat16(ctx, 5, 3)) return false;
  void* gradients[3];
  for (size_t i = 0; i < 3; ++i) {
    gradients[i] = FloatsTo(ctx, i, ctx.In(i + 1).shape()).data;
  }
  LibraryBackward memory = {
      .dy = ctx.In(0).raw(),
      .q = ctx.In(1).raw(),
      .k = ctx.In(2).raw(),
      .v = ctx.In(3).raw(),
      .y = ctx.In(4).raw(),
      .lse = static_cast<const float*>(Operand(ctx, in.y() + 1).raw()),
      .dq = gradients[0],
      .dk = gradients[1],
      .dv = gradients[2]};
  return RunByLibrary(ctx, ProblemOf(z, true), memory, 3);
}

}  // namespace onnx_fp8::cuda
