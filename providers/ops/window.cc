// SPDX-License-Identifier: Apache-2.0
#include "providers/ops/window.h"

#include <algorithm>

#include "providers/ops/arguments.h"
#include "providers/ops/divide_up.h"

namespace onnx_fp8 {
namespace {

// Keeps sums of products of two sizes within int64.
constexpr int64_t kLargest = int64_t{1} << 30;

// The attribute `key`, one entry per spatial axis and end, each in
// least … 2^30.
std::vector<int64_t> AxisAttribute(const KernelContext& ctx, const char* key,
                                   int64_t entries, int64_t otherwise,
                                   int64_t least) {
  std::vector<int64_t> values = ctx.Ints(key);
  if (!ctx.Has(key)) values.assign(static_cast<size_t>(entries), otherwise);
  Check(static_cast<int64_t>(values.size()) == entries, "[", ctx.Where(),
        "] expected ", entries, " entries in ", key, ", got ", values.size());
  for (int64_t v : values) {
    Check(v >= least && v <= kLargest, "[", ctx.Where(), "] expected ", key,
          " from ", least, " to 2^30, got ", v);
  }
  return values;
}

// The window without `pad`, `pad_end` and the side that is computed.
Window WithoutPads(const KernelContext& ctx, const Shape& x,
                   const std::vector<int64_t>& kernel) {
  Window w;
  w.rank = static_cast<int64_t>(x.size()) - 2;
  Check(w.rank >= 1 && w.rank <= 3, "[", ctx.Where(),
        "] expected an input of rank 3 to 5, got shape ", ToString(x));
  Check(static_cast<int64_t>(kernel.size()) == w.rank, "[", ctx.Where(),
        "] expected a kernel of ", w.rank, " axes, got ", ToString(kernel));
  auto stride = AxisAttribute(ctx, "strides", w.rank, 1, 1);
  auto dilation = AxisAttribute(ctx, "dilations", w.rank, 1, 1);
  for (int64_t i = 0; i < w.rank; ++i) {
    auto from = static_cast<size_t>(i),
         to = static_cast<size_t>(3 - w.rank + i);
    Check(kernel[from] >= 1 && kernel[from] <= kLargest, "[", ctx.Where(),
          "] expected kernel sizes from 1 to 2^30, got ", ToString(kernel));
    w.kernel[to] = kernel[from];
    w.stride[to] = stride[from];
    w.dilation[to] = dilation[from];
  }
  return w;
}

int64_t Extent(const Window& w, size_t axis) {
  return (w.kernel[axis] - 1) * w.dilation[axis] + 1;
}

enum class AutoPad { kNotSet, kValid, kSameUpper, kSameLower };

AutoPad AutoPadOf(const KernelContext& ctx) {
  if (ctx.String("auto_pad", "").empty()) return AutoPad::kNotSet;
  return ChoiceIn<AutoPad>(ctx, "auto_pad", "NOTSET",
                           {"NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"});
}

void SplitPad(AutoPad mode, int64_t total, size_t axis, Window& w) {
  int64_t small = total / 2;
  w.pad[axis] = mode == AutoPad::kSameLower ? total - small : small;
  w.pad_end[axis] = total - w.pad[axis];
}

void ReadPads(const KernelContext& ctx, Window& w) {
  auto pads = AxisAttribute(ctx, "pads", 2 * w.rank, 0, -kLargest);
  for (int64_t i = 0; i < w.rank; ++i) {
    auto axis = static_cast<size_t>(3 - w.rank + i);
    w.pad[axis] = pads[static_cast<size_t>(i)];
    w.pad_end[axis] = pads[static_cast<size_t>(i + w.rank)];
  }
}

}  // namespace

std::vector<int64_t> KernelOf(const KernelContext& ctx) {
  const Tensor &x = Operand(ctx, 0), &w = Operand(ctx, 1);
  // The plan may keep one of two floats in 16 bits.
  bool alike = x.dtype() == w.dtype() || ctx.NarrowIn(0) != ctx.NarrowIn(1);
  Check(x.rank() >= 3 && w.rank() == x.rank() && alike, "[", ctx.Where(),
        "] expected x (N,C,…) and a weight of the same rank, got ",
        Name(x.dtype()), ToString(x.shape()), " and ", Name(w.dtype()),
        ToString(w.shape()));
  std::vector<int64_t> kernel(w.shape().begin() + 2, w.shape().end());
  Check(!ctx.Has("kernel_shape") || ctx.Ints("kernel_shape") == kernel, "[",
        ctx.Where(), "] expected kernel_shape ", ToString(kernel), ", got ",
        ToString(ctx.Ints("kernel_shape")));
  return kernel;
}

int64_t GroupOf(const KernelContext& ctx, int64_t divides) {
  int64_t group = ctx.Int("group", 1);
  Check(group >= 1 && divides % group == 0, "[", ctx.Where(),
        "] expected a group that divides ", divides, ", got ", group);
  return group;
}

Shape Window::ShapeOf(int64_t n, int64_t channels, const Axes& sizes) const {
  Shape shape = {n, channels};
  shape.insert(shape.end(), sizes.end() - rank, sizes.end());
  return shape;
}

Window WindowOver(const KernelContext& ctx, const Shape& x,
                  const std::vector<int64_t>& kernel) {
  Window w = WithoutPads(ctx, x, kernel);
  std::copy(x.begin() + 2, x.end(), w.in.end() - w.rank);
  AutoPad mode = AutoPadOf(ctx);
  if (mode == AutoPad::kNotSet) ReadPads(ctx, w);
  bool ceil_mode = ctx.Int("ceil_mode", 0) != 0;
  for (auto axis = static_cast<size_t>(3 - w.rank); axis < 3; ++axis) {
    int64_t in = w.in[axis], stride = w.stride[axis];
    int64_t extent = Extent(w, axis);
    if (mode == AutoPad::kSameUpper || mode == AutoPad::kSameLower) {
      int64_t positions = DivideUp(in, stride);
      int64_t total = (positions - 1) * stride + extent - in;
      SplitPad(mode, std::max<int64_t>(total, 0), axis, w);
    }
    int64_t room = in + w.pad[axis] + w.pad_end[axis] - extent;
    Check(room >= 0 && in > 0 && in <= kLargest, "[", ctx.Where(),
          "] expected an input that holds the window of ", extent, ", got ",
          ToString(x));
    int64_t& out = w.out[axis];
    out = (room + (ceil_mode ? stride - 1 : 0)) / stride + 1;
    // The last window must not start in the padding behind x (ONNX, PyTorch).
    if (ceil_mode && (out - 1) * stride >= in + w.pad[axis]) --out;
  }
  return w;
}

Window TransposedWindow(const KernelContext& ctx, const Shape& x,
                        const std::vector<int64_t>& kernel) {
  Window w = WithoutPads(ctx, x, kernel);
  std::copy(x.begin() + 2, x.end(), w.out.end() - w.rank);
  AutoPad mode = AutoPadOf(ctx);
  if (mode == AutoPad::kNotSet) ReadPads(ctx, w);
  auto extra = AxisAttribute(ctx, "output_padding", w.rank, 0, 0);
  bool given = ctx.Has("output_shape");
  std::vector<int64_t> sizes;
  if (given) sizes = AxisAttribute(ctx, "output_shape", w.rank, 0, 1);
  for (int64_t i = 0; i < w.rank; ++i) {
    auto axis = static_cast<size_t>(3 - w.rank + i);
    int64_t out = w.out[axis], stride = w.stride[axis];
    int64_t extent = Extent(w, axis);
    Check(out > 0 && out <= kLargest, "[", ctx.Where(),
          "] expected spatial sizes from 1 to 2^30, got ", ToString(x));
    int64_t full = stride * (out - 1) + extent + extra[static_cast<size_t>(i)];
    if (given) {
      w.in[axis] = sizes[static_cast<size_t>(i)];
      int64_t total = std::max<int64_t>(full - w.in[axis], 0);
      // ONNX: all modes except SAME_UPPER put the larger half first.
      SplitPad(mode == AutoPad::kSameUpper ? mode : AutoPad::kSameLower, total,
               axis, w);
      continue;
    }
    if (mode == AutoPad::kSameUpper || mode == AutoPad::kSameLower) {
      SplitPad(mode, std::max<int64_t>(extent - stride, 0), axis, w);
    }
    w.in[axis] = full - w.pad[axis] - w.pad_end[axis];
    Check(w.in[axis] > 0, "[", ctx.Where(),
          "] expected pads smaller than the result, got a result of ",
          w.in[axis], " elements");
  }
  return w;
}

TapRange InsideRange(const Window& w, size_t axis, int64_t k) {
  int64_t offset = k * w.dilation[axis] - w.pad[axis];
  int64_t stride = w.stride[axis], out = w.out[axis];
  // offset + o · stride in 0 … in-1
  int64_t begin = offset >= 0 ? 0 : (-offset + stride - 1) / stride;
  int64_t last = w.in[axis] - 1 - offset;
  int64_t end = last < 0 ? 0 : std::min(out, last / stride + 1);
  return {std::min(begin, end), end};
}

}  // namespace onnx_fp8
