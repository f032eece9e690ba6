// SPDX-License-Identifier: Apache-2.0
//
// Ops that only move elements: reordering, parts and copies. They are the same
// for every provider but for the loop that copies.
#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

#include "onnx_fp8/shape.h"
#include "providers/kernel.h"
#include "providers/ops/arguments.h"
#include "providers/ops/broadcast.h"
#include "providers/ops/divide_up.h"
#include "providers/ops/for_width.h"

namespace onnx_fp8 {

// dst[Σ i·dst_strides] = src[Σ i·src_strides] for every index i of `shape`, in
// the provider's memory. Strides count elements of `width` bytes (1, 2, 4, 8).
// Strides of src may be 0 or negative; strides of dst give each index its own
// element. src and dst do not overlap.
using StridedCopy = void (*)(KernelContext& ctx, std::span<const int64_t> shape,
                             size_t width, const void* src,
                             std::span<const int64_t> src_strides, void* dst,
                             std::span<const int64_t> dst_strides);

// A matrix (rows, columns), densely packed, that goes to the columns of another
// one from `to` on.
struct Columns {
  const void* data;
  int64_t rows, columns, to;
};

// Puts matrices beside each other into dst, whose rows have `width` elements of
// `bytes` bytes.
using ColumnsCopy = void (*)(KernelContext& ctx, std::span<const Columns> parts,
                             size_t bytes, void* dst, int64_t width);

template <StridedCopy kCopy>
void CopyColumns(KernelContext& ctx, std::span<const Columns> parts,
                 size_t bytes, void* dst, int64_t width) {
  for (const Columns& part : parts) {
    const std::vector<int64_t> shape = {part.rows, part.columns};
    const std::vector<int64_t> from = {part.columns, 1}, to = {width, 1};
    kCopy(ctx, shape, bytes, part.data, from, AtElement(dst, part.to, bytes),
          to);
  }
}

template <StridedCopy kCopy, ColumnsCopy kCopyColumns = CopyColumns<kCopy>>
class Movement {
 public:
  static void Register(KernelRegistry& r) {
    const KernelTraits moves{.moves = true};
    r.Add("Transpose", Transpose, moves);
    r.Add("DepthToSpace", DepthToSpace, moves);
    r.Add("SpaceToDepth", SpaceToDepth, moves);
    r.Add("ReverseSequence", ReverseSequence, {.moves = true});
    r.Add("Concat", Concat, moves);
    r.Add("Split", Split, {.moves = true});
    r.Add("Slice", Slice, {.moves = true});
    r.Add("Expand", Expand, {.moves = true});
    r.Add("Tile", Tile, {.moves = true});
  }

 private:
  // y = the elements of x at `offset` and `strides`, densely packed.
  static void Pack(KernelContext& ctx, const Tensor& x, int64_t offset,
                   std::span<const int64_t> strides, Tensor& y) {
    if (y.size() == 0) return;
    size_t width = ByteSize(x.dtype());
    kCopy(ctx, y.shape(), width, AtElement(x.raw(), offset, width), strides,
          y.raw(), Strides(y.shape()));
  }

  // ---- another order

  static void Transpose(KernelContext& ctx) {
    const Tensor& x = Operand(ctx, 0);
    std::vector<int64_t> perm(x.shape().size());
    std::iota(perm.rbegin(), perm.rend(), 0);
    perm = AxesIn(ctx, ctx.Ints("perm", perm), x.rank());
    Check(perm.size() == x.shape().size(), "[", ctx.Where(),
          "] expected a permutation of ", x.rank(), " axes, got ", perm.size());
    Shape shape;
    for (int64_t axis : perm) shape.push_back(x.dim(axis));
    Tensor& y = ctx.Out(0, x.dtype(), shape);
    if (y.size() == 0) return;
    std::vector<int64_t> x_strides = Strides(x.shape()), strides;
    for (int64_t axis : perm) {
      strides.push_back(x_strides[static_cast<size_t>(axis)]);
    }
    Pack(ctx, x, 0, strides, y);
  }

  // Views x as `split`, then puts the axes into the order `perm`.
  static void SplitAndPermute(KernelContext& ctx, const Tensor& x,
                              const Shape& split,
                              const std::vector<size_t>& perm, Tensor& y) {
    if (y.size() == 0) return;
    std::vector<int64_t> split_strides = Strides(split), strides;
    Shape shape;
    for (size_t axis : perm) {
      shape.push_back(split[axis]);
      strides.push_back(split_strides[axis]);
    }
    kCopy(ctx, shape, ByteSize(x.dtype()), x.raw(), strides, y.raw(),
          Strides(shape));
  }

  static int64_t BlockSize(const KernelContext& ctx) {
    const Tensor& x = Operand(ctx, 0);
    Check(x.rank() == 4, "[", ctx.Where(),
          "] expected x of shape (N,C,H,W), got ", ToString(x.shape()));
    int64_t block = ctx.Int("blocksize", 0);
    Check(block > 0 && block < (1 << 15), "[", ctx.Where(),
          "] expected a blocksize above 0, got ", block);
    return block;
  }

  // x (N, C·b², H, W) → y (N, C, H·b, W·b)
  static void DepthToSpace(KernelContext& ctx) {
    int64_t b = BlockSize(ctx);
    const Tensor& x = ctx.In(0);
    bool channels_first = ChoiceIn<bool>(ctx, "mode", "DCR", {"DCR", "CRD"});
    int64_t n = x.dim(0), depth = x.dim(1) / (b * b), h = x.dim(2),
            w = x.dim(3);
    Check(depth * b * b == x.dim(1), "[", ctx.Where(),
          "] expected a multiple of ", b * b, " channels, got ", x.dim(1));
    Tensor& y = ctx.Out(0, x.dtype(), {n, depth, h * b, w * b});
    if (channels_first) {
      SplitAndPermute(ctx, x, {n, depth, b, b, h, w}, {0, 1, 4, 2, 5, 3}, y);
    } else {
      SplitAndPermute(ctx, x, {n, b, b, depth, h, w}, {0, 3, 4, 1, 5, 2}, y);
    }
  }

  // x (N, C, H·b, W·b) → y (N, b²·C, H, W)
  static void SpaceToDepth(KernelContext& ctx) {
    int64_t b = BlockSize(ctx);
    const Tensor& x = ctx.In(0);
    bool channels_first = ChoiceIn<bool>(ctx, "mode", "DCR", {"DCR", "CRD"});
    int64_t n = x.dim(0), depth = x.dim(1), h = x.dim(2) / b, w = x.dim(3) / b;
    Check(h * b == x.dim(2) && w * b == x.dim(3), "[", ctx.Where(),
          "] expected height and width in multiples of ", b, ", got ",
          ToString(x.shape()));
    Tensor& y = ctx.Out(0, x.dtype(), {n, depth * b * b, h, w});
    const Shape split = {n, depth, h, b, w, b};
    if (channels_first) {
      SplitAndPermute(ctx, x, split, {0, 1, 3, 5, 2, 4}, y);
    } else {
      SplitAndPermute(ctx, x, split, {0, 3, 5, 1, 2, 4}, y);
    }
  }

  // x (time, batch, inner…) or (batch, time, inner…): the first lengths[i] rows
  // of batch entry i are reversed, the others stay.
  static void ReverseSequence(KernelContext& ctx) {
    const Tensor& x = Operand(ctx, 0);
    int64_t batch_axis = ctx.Int("batch_axis", 1);
    int64_t time_axis = ctx.Int("time_axis", 0);
    Check(x.rank() >= 2 && batch_axis + time_axis == 1 &&
              batch_axis * time_axis == 0,
          "[", ctx.Where(),
          "] expected axes 0 and 1 and two axes at least, got ", batch_axis,
          ", ", time_axis, " and shape ", ToString(x.shape()));
    int64_t batch = x.dim(batch_axis), time = x.dim(time_axis);
    std::vector<int64_t> lengths = IntsIn(ctx, 1);
    Check(static_cast<int64_t>(lengths.size()) == batch, "[", ctx.Where(),
          "] expected ", batch, " lengths, got ", lengths.size());
    for (int64_t length : lengths) {
      Check(length >= 0 && length <= time, "[", ctx.Where(),
            "] expected lengths in 0…", time, ", got ", length);
    }
    Tensor& y = ctx.Out(0, x.dtype(), x.shape());
    if (y.size() == 0) return;
    size_t width = ByteSize(x.dtype());
    std::vector<int64_t> strides = Strides(x.shape());
    int64_t batch_step = strides[static_cast<size_t>(batch_axis)];
    int64_t step = strides[static_cast<size_t>(time_axis)];
    int64_t inner = strides[1];
    auto copy = [&](int64_t count, int64_t from, int64_t from_step,
                    int64_t to) {
      Shape shape = {count, inner};
      std::vector<int64_t> src = {from_step, 1}, dst = {step, 1};
      kCopy(ctx, shape, width, AtElement(x.raw(), from, width), src,
            AtElement(y.raw(), to, width), dst);
    };
    for (int64_t i = 0; i < batch; ++i) {
      int64_t length = lengths[static_cast<size_t>(i)], base = i * batch_step;
      if (length > 0) copy(length, base + (length - 1) * step, -step, base);
      copy(time - length, base + length * step, step, base + length * step);
    }
  }

  // ---- parts and copies

  static void Concat(KernelContext& ctx) {
    const Tensor& first = Operand(ctx, 0);
    auto axis =
        static_cast<size_t>(AxisIn(ctx, ctx.Int("axis", 0), first.rank()));
    Shape shape = first.shape();
    for (size_t i = 1; i < ctx.num_inputs(); ++i) {
      const Tensor& x = Operand(ctx, i);
      CheckSameDType(ctx, first, x);
      Shape expected = x.shape();
      if (expected.size() == shape.size()) expected[axis] = shape[axis];
      Check(expected == shape, "[", ctx.Where(),
            "] expected shapes that differ in axis ", axis, " only, got ",
            ToString(first.shape()), " and ", ToString(x.shape()));
      shape[axis] += x.shape()[axis];
    }
    Tensor& y = ctx.Out(0, first.dtype(), shape);
    if (y.size() == 0) return;
    int64_t inner = Strides(shape)[axis], width = shape[axis] * inner;
    std::vector<Columns> parts;
    int64_t to = 0;
    for (size_t i = 0; i < ctx.num_inputs(); ++i) {
      const Tensor& x = ctx.In(i);
      int64_t columns = x.shape()[axis] * inner;
      parts.push_back({x.raw(), y.size() / width, columns, to});
      to += columns;
    }
    kCopyColumns(ctx, parts, ByteSize(first.dtype()), y.raw(), width);
  }

  // Sizes of the parts along an axis of `size`.
  static std::vector<int64_t> PartSizes(const KernelContext& ctx,
                                        int64_t size) {
    auto count = static_cast<int64_t>(ctx.num_outputs());
    std::vector<int64_t> parts;
    if (ctx.HasIn(1)) {
      parts = IntsIn(ctx, 1);
    } else {
      int64_t wanted = ctx.Int("num_outputs", count);
      Check(wanted == count && count > 0, "[", ctx.Where(), "] expected ",
            wanted, " outputs, got ", count);
      int64_t part = DivideUp(size, count);
      parts.assign(static_cast<size_t>(count), part);
      parts.back() = size - part * (count - 1);
    }
    int64_t rest = size;
    for (int64_t part : parts) {
      Check(part >= 0 && part <= rest, "[", ctx.Where(), "] expected parts of ",
            size, " elements in all, got one of ", part, " where ", rest,
            " are left");
      rest -= part;
    }
    Check(rest == 0 && parts.size() == ctx.num_outputs(), "[", ctx.Where(),
          "] expected ", ctx.num_outputs(), " parts that sum to ", size,
          ", got ", parts.size(), " and ", rest, " left over");
    return parts;
  }

  static void Split(KernelContext& ctx) {
    const Tensor& x = Operand(ctx, 0);
    auto axis = static_cast<size_t>(AxisIn(ctx, ctx.Int("axis", 0), x.rank()));
    std::vector<int64_t> parts = PartSizes(ctx, x.shape()[axis]);
    int64_t begin = 0;
    for (size_t i = 0; i < parts.size(); ++i) {
      if (ctx.HasOut(i)) {
        Shape shape = x.shape();
        shape[axis] = parts[i];
        Tensor& y = ctx.Out(i, x.dtype(), shape);
        if (y.size() > 0) {
          std::vector<int64_t> strides = Strides(x.shape());
          Pack(ctx, x, begin * strides[axis], strides, y);
        }
      }
      begin += parts[i];
    }
  }

  struct SliceRange {
    int64_t start, step, count;
  };

  // One axis of Slice; `start` and `end` may lie anywhere. REQUIRES: step != 0.
  static SliceRange ClampSlice(int64_t start, int64_t end, int64_t step,
                               int64_t size) {
    if (size == 0) return {0, 1, 0};
    // With a longer step, too, exactly one element is taken.
    step = std::clamp(step, -size, size);
    if (start < 0) start += size;
    if (end < 0) end += size;
    if (step > 0) {
      start = std::clamp<int64_t>(start, 0, size);
      end = std::clamp<int64_t>(end, 0, size);
      return {start, step, std::max<int64_t>(end - start + step - 1, 0) / step};
    }
    start = std::clamp<int64_t>(start, 0, size - 1);
    end = std::clamp<int64_t>(end, -1, size - 1);
    return {start, step, std::max<int64_t>(start - end - step - 1, 0) / -step};
  }

  static void Slice(KernelContext& ctx) {
    const Tensor& x = Operand(ctx, 0);
    std::vector<int64_t> starts = IntsIn(ctx, 1), ends = IntsIn(ctx, 2), axes;
    if (ctx.HasIn(3)) {
      axes = IntsIn(ctx, 3);
    } else {
      axes.resize(starts.size());
      std::iota(axes.begin(), axes.end(), 0);
    }
    axes = AxesIn(ctx, axes, x.rank());
    std::vector<int64_t> steps(starts.size(), 1);
    if (ctx.HasIn(4)) steps = IntsIn(ctx, 4);
    Check(ends.size() == starts.size() && axes.size() == starts.size() &&
              steps.size() == starts.size(),
          "[", ctx.Where(), "] expected ", starts.size(),
          " starts, ends, axes and steps, got ", ends.size(), ", ", axes.size(),
          " and ", steps.size());
    std::vector<SliceRange> ranges;
    for (int64_t size : x.shape()) ranges.push_back({0, 1, size});
    for (size_t i = 0; i < axes.size(); ++i) {
      Check(steps[i] != 0, "[", ctx.Where(), "] expected a step, got 0");
      auto axis = static_cast<size_t>(axes[i]);
      ranges[axis] = ClampSlice(starts[i], ends[i], steps[i], x.shape()[axis]);
    }
    Shape shape;
    for (const SliceRange& range : ranges) shape.push_back(range.count);
    Tensor& y = ctx.Out(0, x.dtype(), shape);
    if (y.size() == 0) return;
    std::vector<int64_t> strides = Strides(x.shape());
    int64_t offset = 0;
    for (size_t i = 0; i < ranges.size(); ++i) {
      offset += ranges[i].start * strides[i];
      strides[i] *= ranges[i].step;
    }
    Pack(ctx, x, offset, strides, y);
  }

  static void Expand(KernelContext& ctx) {
    const Tensor& x = Operand(ctx, 0);
    Shape wanted = IntsIn(ctx, 1);
    CheckSizes(ctx, wanted);
    Tensor& y =
        ctx.Out(0, x.dtype(), BroadcastShapes(x.shape(), wanted, ctx.Where()));
    if (y.size() == 0) return;
    Pack(ctx, x, 0, BroadcastStrides(x.shape(), y.shape().size()), y);
  }

  static void Tile(KernelContext& ctx) {
    const Tensor& x = Operand(ctx, 0);
    std::vector<int64_t> repeats = IntsIn(ctx, 1);
    Check(repeats.size() == x.shape().size(), "[", ctx.Where(), "] expected ",
          x.rank(), " repeats, got ", repeats.size());
    Shape shape = x.shape(), split;
    for (size_t i = 0; i < shape.size(); ++i) {
      Check(repeats[i] >= 0 &&
                !__builtin_mul_overflow(shape[i], repeats[i], &shape[i]),
            "[", ctx.Where(), "] expected repeats from 0 on, got ", repeats[i],
            " of ", x.shape()[i], " elements");
      split.insert(split.end(), {repeats[i], x.shape()[i]});
    }
    Tensor& y = ctx.Out(0, x.dtype(), shape);
    if (y.size() == 0) return;
    std::vector<int64_t> strides;
    for (int64_t stride : Strides(x.shape())) {
      strides.insert(strides.end(), {0, stride});
    }
    kCopy(ctx, split, ByteSize(x.dtype()), x.raw(), strides, y.raw(),
          Strides(split));
  }
};

}  // namespace onnx_fp8
