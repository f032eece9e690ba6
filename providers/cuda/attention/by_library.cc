// SPDX-License-Identifier: Apache-2.0
#include "providers/cuda/attention/by_library.h"

#include <cmath>

#include "providers/cuda/attention/measure.h"
#include "providers/cuda/attention/parts.h"
#include "providers/cuda/core/check.h"
#include "providers/cuda/core/floats.h"
#include "providers/cuda/core/queue.h"
#include "providers/most_workspace.h"
#include "providers/ops/arguments.h"

namespace onnx_fp8::cuda {
namespace {

constexpr int64_t kMostWidth = 128, kWidthStep = 8;

// Attention with segments always has a bias.
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

// Options of the provider; without a device, the defaults.
ProviderOptions OptionsOf(const KernelContext& ctx) {
  return ctx.queue() ? QueueOf(ctx).options() : ProviderOptions{};
}

// The parts of the library's problem; nullopt: the node is no such problem.
std::optional<LibraryParts> PartsIn(const KernelContext& ctx,
                                    const AttentionSizes& z,
                                    const AttentionInputs& in) {
  bool backward = in.backward();
  bool fits =
      FitsLibrary(z, in) && AreBFloat16(ctx, backward ? in.y() + 1 : in.count(),
                                        backward ? in.count() : 1);
  if (!fits) return std::nullopt;
  ProviderOptions options = OptionsOf(ctx);
  LibraryProblem problem = ProblemOf(z, backward);
  if (!backward) problem.keeps_lse = ctx.HasOut(1);
  problem.deterministic = !options.nondeterministic;
  return EqualParts(problem,
                    MostWorkspaceOf(ctx.node(), options.attention_workspace));
}

// Bytes of the workspace; without a device, the most. nullopt: the library
// can't compute the parts.
std::optional<size_t> WorkspaceOf(const KernelContext& ctx,
                                  const LibraryParts& parts) {
  if (!ctx.queue()) return MostWorkspace(parts);
  auto& library = QueueOf(ctx).Own<AttentionLibrary>();
  std::optional<size_t> bytes = library.Workspace(parts.part);
  if (bytes) *bytes += parts.LseBytes();
  return bytes;
}

// Runs one part after the other. `workspace`: parts.LseBytes() bytes for a copy
// of lse, then the library's workspace.
void RunParts(KernelContext& ctx, const LibraryParts& parts,
              const LibraryBackward& memory, char* workspace) {
  Queue& queue = QueueOf(ctx);
  const size_t copied = parts.LseBytes();
  for (int64_t i = 0; i < parts.count(); ++i) {
    LibraryBackward m = MemoryOf(parts, memory, i);
    if (copied > 0) {
      int64_t rows = parts.part.b * parts.part.heads * parts.part.t;
      ONNX_FP8_CUDA(cudaMemcpyAsync(workspace, m.lse,
                                    static_cast<size_t>(rows) * sizeof(float),
                                    cudaMemcpyDeviceToDevice, queue.stream()));
      m.lse = reinterpret_cast<const float*>(workspace);
    }
    queue.Own<AttentionLibrary>().Run(parts.part, m, workspace + copied,
                                      queue.stream());
  }
}

}  // namespace

std::optional<size_t> LibraryWorkspace(KernelContext& ctx,
                                       const AttentionSizes& z,
                                       const AttentionInputs& in) {
  std::optional<LibraryParts> parts = PartsIn(ctx, z, in);
  return parts ? WorkspaceOf(ctx, *parts) : std::nullopt;
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
  std::optional<LibraryParts> parts = PartsIn(ctx, z, in);
  if (!parts) return false;
  std::optional<size_t> bytes = WorkspaceOf(ctx, *parts);
  if (!bytes) return false;
  LibraryForward memory = {.q = At(z.q, ctx.In(in.operand(0))),
                           .k = At(z.k, ctx.In(in.operand(1))),
                           .v = At(z.v, ctx.In(in.operand(2))),
                           .y = FloatsTo(ctx, 0, z.y_shape).data,
                           .lse = nullptr};
  if (parts->whole.keeps_lse) {
    Tensor& lse = ctx.Out(1, DType::kFloat, {z.b, z.heads, z.t});
    memory.lse = static_cast<float*>(lse.raw());
  }
  Queue& queue = QueueOf(ctx);
  queue.Own<AttentionLibrary>().Run(parts->whole, memory, ctx.Workspace(*bytes),
                                    queue.stream());
  MeasureResult(ctx, 0);
  return true;
}

bool BackwardByLibrary(KernelContext& ctx, const AttentionSizes& z,
                       const AttentionInputs& in) {
  std::optional<LibraryParts> parts = PartsIn(ctx, z, in);
  if (!parts) return false;
  std::optional<size_t> bytes = WorkspaceOf(ctx, *parts);
  if (!bytes) return false;
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
  RunParts(ctx, *parts, memory, static_cast<char*>(ctx.Workspace(*bytes)));
  for (size_t i = 0; i < in.count(); ++i) MeasureResult(ctx, i);
  return true;
}

}  // namespace onnx_fp8::cuda
