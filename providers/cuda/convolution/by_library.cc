// SPDX-License-Identifier: Apache-2.0
#include "providers/cuda/convolution/by_library.h"

#include <algorithm>
#include <utility>

#include "providers/cuda/convolution/add_bias.h"
#include "providers/cuda/convolution/swap_axes.h"
#include "providers/cuda/core/queue.h"
#include "providers/ops/divide_up.h"

namespace onnx_fp8::cuda {
namespace {

// Axes of space of the library: two or three, the innermost ones.
std::vector<int64_t> SpaceOf(const Window& w, const Window::Axes& axes) {
  return {axes.begin() + (w.rank == 3 ? 0 : 1), axes.end()};
}

// Axes 0 and 1 of those sizes and strides; the others are packed.
ConvolutionTensor TensorOf(int64_t outer, int64_t outer_stride, int64_t inner,
                           int64_t inner_stride,
                           const std::vector<int64_t>& space) {
  ConvolutionTensor x = {{outer, inner}, {outer_stride, inner_stride}};
  x.sizes.insert(x.sizes.end(), space.begin(), space.end());
  x.strides.resize(x.sizes.size());
  int64_t stride = 1;
  for (size_t axis = x.sizes.size() - 1; axis > 1; --axis) {
    x.strides[axis] = stride;
    stride *= x.sizes[axis];
  }
  return x;
}

ConvolutionTensor Packed(int64_t outer, int64_t inner, const Window& w,
                         const Window::Axes& axes) {
  int64_t plane = Window::Product(axes);
  return TensorOf(outer, inner * plane, inner, plane, SpaceOf(w, axes));
}

// The packed tensor (outer, inner, …), axis 1 before axis 0.
ConvolutionTensor Swapped(int64_t outer, int64_t inner, const Window& w,
                          const Window::Axes& axes) {
  int64_t plane = Window::Product(axes);
  return TensorOf(inner, plane, outer, inner * plane, SpaceOf(w, axes));
}

// Zeros that are needed behind x; a negative number: elements that no position
// reads.
Window::Axes NeededEnds(const Window& w) {
  Window::Axes ends;
  for (size_t a = 0; a < 3; ++a) {
    ends[a] = (w.out[a] - 1) * w.stride[a] + (w.kernel[a] - 1) * w.dilation[a] +
              1 - w.in[a] - w.pad[a];
  }
  return ends;
}

bool IsWeightGradient(const ConvolutionSizes& z) {
  if (z.transposed) return false;
  Window::Axes reach;
  for (size_t a = 0; a < 3; ++a) {
    reach[a] = (z.w.kernel[a] - 1) * z.w.dilation[a] + 1;
  }
  int64_t places = Window::Product(z.w.out);
  return Window::Product(reach) > places &&
         z.c * Window::Product(z.w.kernel) > z.n * places;
}

// The channels of all groups interleave, unless there is one image: no stride
// leads from channel to channel.
bool GroupsApart(const ConvolutionSizes& z) {
  return IsWeightGradient(z) && z.group > 1 && z.n > 1;
}

// More elements at the end would make room for another position.
bool FitsLibrary(const ConvolutionSizes& z) {
  const Window::Axes& strides = IsWeightGradient(z) ? z.w.dilation : z.w.stride;
  Window::Axes ends = NeededEnds(z.w);
  for (size_t a = 0; a < 3; ++a) {
    if (z.w.pad[a] < 0 || -ends[a] >= strides[a]) return false;
  }
  return true;
}

}  // namespace

ConvolutionProblem ProblemOf(const ConvolutionSizes& z, Storage storage) {
  const Window& w = z.w;
  Window::Axes ends = NeededEnds(w);
  for (int64_t& end : ends) end = std::max<int64_t>(end, 0);
  ConvolutionProblem p = {.pass = ConvolutionPass::kForward,
                          .storage = storage,
                          .x = {},
                          .weight = {},
                          .y = {},
                          .stride = SpaceOf(w, w.stride),
                          .dilation = SpaceOf(w, w.dilation),
                          .pad = SpaceOf(w, w.pad),
                          .pad_end = SpaceOf(w, ends)};
  int64_t c = z.c * z.group, m = z.m * z.group;
  if (z.transposed) {
    p.pass = ConvolutionPass::kInputGradient;
    p.y = Packed(z.n, c, w, w.out);
    p.weight = Packed(c, z.m, w, w.kernel);
    p.x = Packed(z.n, m, w, w.in);
  } else if (IsWeightGradient(z)) {
    p.pass = ConvolutionPass::kWeightGradient;
    std::swap(p.stride, p.dilation);
    p.x = GroupsApart(z) ? Packed(z.c, z.n * z.group, w, w.in)
                         : Swapped(z.n * z.group, z.c, w, w.in);
    p.y = Swapped(m, z.c, w, w.kernel);
    p.weight = Packed(m, z.n, w, w.out);
  } else {
    p.x = Packed(z.n, c, w, w.in);
    p.weight = Packed(m, z.c, w, w.kernel);
    p.y = Packed(z.n, m, w, w.out);
  }
  return p;
}

namespace {

// Copies with axes in other places, which lie before the library's workspace.
// Bytes, whole units of memory; 0: no copy is needed.
struct Copies {
  size_t x = 0;  // of a gradient of groups: the channels of a group in a row
  // cuDNN writes gradients of weights packed, whatever strides they shall have.
  // Their axes 0 and 1 change places afterwards, unless one has size 1.
  size_t result = 0;
};

Copies CopiesOf(const ConvolutionSizes& z, Storage storage) {
  auto bytes = [storage](int64_t elements) {
    auto size = static_cast<int64_t>(ByteSize(StorageDType(storage)));
    return static_cast<size_t>(RoundUp(elements * size, 256));
  };
  Copies copies;
  int64_t n = z.n * z.group, m = z.m * z.group;
  if (!IsWeightGradient(z)) return copies;
  if (GroupsApart(z)) copies.x = bytes(n * z.c * Window::Product(z.w.in));
  if (z.n > 1 && m > 1) {
    copies.result = bytes(z.n * m * Window::Product(z.w.out));
  }
  return copies;
}

// The library's own workspace.
std::optional<size_t> LibraryAlone(const KernelContext& ctx,
                                   const ConvolutionSizes& z,
                                   const ConvolutionOperands& operands) {
  Storage storage = operands.y.storage;
  if (operands.x.storage != storage || operands.weight.storage != storage ||
      z.c == 0 || !FitsLibrary(z) || !ctx.queue()) {
    return std::nullopt;
  }
  return QueueOf(ctx).Own<ConvolutionLibrary>().Workspace(
      ProblemOf(z, storage));
}

}  // namespace

std::optional<size_t> LibraryWorkspace(const KernelContext& ctx,
                                       const ConvolutionSizes& z,
                                       const ConvolutionOperands& operands) {
  std::optional<size_t> bytes = LibraryAlone(ctx, z, operands);
  Copies copies = CopiesOf(z, operands.y.storage);
  if (bytes) *bytes += copies.x + copies.result;
  return bytes;
}

bool ConvolveByLibrary(const KernelContext& ctx, const ConvolutionSizes& z,
                       const ConvolutionOperands& operands) {
  std::optional<size_t> bytes = LibraryWorkspace(ctx, z, operands);
  if (!bytes) return false;
  ConvolutionProblem problem = ProblemOf(z, operands.y.storage);
  Queue& queue = QueueOf(ctx);
  auto& library = queue.Own<ConvolutionLibrary>();
  auto* x = const_cast<void*>(operands.x.data);
  auto* weight = const_cast<void*>(operands.weight.data);
  auto* workspace = static_cast<uint8_t*>(ctx.Workspace(*bytes));
  Copies copies = CopiesOf(z, operands.y.storage);
  ConvolutionMemory memory = {.x = x, .weight = weight, .y = operands.y.data};
  if (problem.pass == ConvolutionPass::kInputGradient) {
    memory = {.x = operands.y.data, .weight = weight, .y = x};
  } else if (problem.pass == ConvolutionPass::kWeightGradient) {
    memory = {.x = x, .weight = operands.y.data, .y = weight};
  }
  if (copies.x > 0) {
    memory.x = std::exchange(workspace, workspace + copies.x);
    SwapAxes(ctx, operands.x, {memory.x, operands.x.storage}, z.n, z.group, z.c,
             Window::Product(z.w.in));
  }
  if (copies.result > 0) {
    memory.weight = std::exchange(workspace, workspace + copies.result);
  }
  library.Run(problem, memory, workspace, queue.stream());
  if (copies.result > 0) {
    SwapAxes(ctx, {memory.weight, operands.y.storage}, operands.y,
             z.m * z.group, 1, z.n, Window::Product(z.w.out));
  }
  if (operands.bias.data) {
    const Window::Axes& sizes = z.transposed ? z.w.in : z.w.out;
    AddBias(ctx, operands.y, operands.bias, z.n * z.group * z.m, z.group * z.m,
            Window::Product(sizes));
  }
  return true;
}

}  // namespace onnx_fp8::cuda
