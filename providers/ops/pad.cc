// SPDX-License-Identifier: Apache-2.0
#include "providers/ops/pad.h"

#include <algorithm>
#include <numeric>

#include "providers/ops/arguments.h"

namespace onnx_fp8 {
namespace {

enum class PadMode { kConstant, kReflect, kEdge, kWrap };

// The element of 0 … n-1 at position i, which may lie outside; -1 for the
// constant. REQUIRES: n > 0.
int64_t PaddedSource(PadMode mode, int64_t i, int64_t n) {
  if (i >= 0 && i < n) return i;
  switch (mode) {
    case PadMode::kConstant:
      return -1;
    case PadMode::kEdge:
      return i < 0 ? 0 : n - 1;
    case PadMode::kWrap:
      return (i % n + n) % n;
    case PadMode::kReflect: {
      // Without repeating the ends: the period is 2n - 2.
      int64_t period = std::max<int64_t>(2 * n - 2, 1);
      i = (i % period + period) % period;
      return std::min(i, period - i);
    }
  }
  return -1;
}

struct PadAxis {
  int64_t before, after;
};

std::vector<PadAxis> PadsOf(const KernelContext& ctx) {
  int64_t rank = ctx.In(0).rank();
  std::vector<int64_t> pads = IntsIn(ctx, 1), axes;
  if (ctx.HasIn(3)) {
    axes = AxesIn(ctx, IntsIn(ctx, 3), rank);
  } else {
    axes.resize(static_cast<size_t>(rank));
    std::iota(axes.begin(), axes.end(), 0);
  }
  Check(pads.size() == 2 * axes.size(), "[", ctx.Where(), "] expected ",
        2 * axes.size(), " pads, got ", pads.size());
  std::vector<PadAxis> by_axis(static_cast<size_t>(rank), PadAxis{0, 0});
  constexpr int64_t kLimit = int64_t{1} << 60;
  for (size_t i = 0; i < axes.size(); ++i) {
    PadAxis pad = {pads[i], pads[axes.size() + i]};
    Check(std::max(pad.before, pad.after) < kLimit &&
              std::min(pad.before, pad.after) > -kLimit,
          "[", ctx.Where(), "] expected pads that fit into memory, got ",
          pad.before, " and ", pad.after);
    by_axis[static_cast<size_t>(axes[i])] = pad;
  }
  return by_axis;
}

// Per axis: for each position of y, the offset in x of its element, or -1.
// Negative pads crop first, so that reflection sees only the rest.
std::vector<std::vector<int64_t>> OffsetTables(const KernelContext& ctx,
                                               PadMode mode,
                                               const std::vector<PadAxis>& pads,
                                               const Shape& shape) {
  const Tensor& x = ctx.In(0);
  std::vector<int64_t> strides = Strides(x.shape());
  std::vector<std::vector<int64_t>> tables(pads.size());
  for (size_t d = 0; d < pads.size(); ++d) {
    int64_t first = std::max<int64_t>(-pads[d].before, 0);
    int64_t left = x.shape()[d] - first - std::max<int64_t>(-pads[d].after, 0);
    Check(left > 0 || mode == PadMode::kConstant, "[", ctx.Where(),
          "] expected elements to repeat in axis ", d, ", got none");
    for (int64_t i = 0; i < shape[d]; ++i) {
      int64_t source =
          PaddedSource(mode, i - std::max<int64_t>(pads[d].before, 0),
                       std::max<int64_t>(left, 0));
      tables[d].push_back(source < 0 ? -1 : (source + first) * strides[d]);
    }
  }
  return tables;
}

PadMode PadModeOf(const KernelContext& ctx) {
  return ChoiceIn<PadMode>(ctx, "mode", "constant",
                           {"constant", "reflect", "edge", "wrap"});
}

}  // namespace

Shape PaddedShape(const KernelContext& ctx) {
  const Tensor& x = Operand(ctx, 0);
  PadModeOf(ctx);
  std::vector<PadAxis> pads = PadsOf(ctx);
  Shape shape = x.shape();
  for (size_t d = 0; d < pads.size(); ++d) {
    shape[d] += pads[d].before + pads[d].after;
    Check(shape[d] >= 0, "[", ctx.Where(), "] expected pads that leave axis ",
          d, " a size, got ", pads[d].before, " and ", pads[d].after, " for ",
          ToString(x.shape()));
  }
  if (ctx.HasIn(2)) {
    CheckSameDType(ctx, x, ctx.In(2));
    Check(ctx.In(2).size() == 1, "[", ctx.Where(),
          "] expected one constant, got shape ", ToString(ctx.In(2).shape()));
  }
  return shape;
}

std::vector<std::vector<int64_t>> PadTables(const KernelContext& ctx,
                                            const Shape& padded) {
  return OffsetTables(ctx, PadModeOf(ctx), PadsOf(ctx), padded);
}

}  // namespace onnx_fp8
