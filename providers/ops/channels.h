// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/check.h"
#include "providers/ops/arguments.h"

namespace onnx_fp8 {

// x as (batch, channels, inner): ONNX's N x C x D1 x …. A rank-1 tensor has one
// channel. Errors: a scalar.
inline AxisView Channels(const KernelContext& ctx, const Tensor& x) {
  Check(x.rank() > 0, "[", ctx.Where(), "] expected N x C x …, got a scalar");
  if (x.rank() == 1) return {x.size(), 1, 1};
  return ViewAlong(x.shape(), 1);
}

// x in groups of channels. Each group of a batch lies in one piece.
struct ChannelGroups {
  AxisView view;  // Channels'
  int64_t groups;
};

// `groups` < 0: each channel is one. Errors: x has no channels; another number
// than `groups` divides them.
inline ChannelGroups GroupsOf(const KernelContext& ctx, const Tensor& x,
                              int64_t groups) {
  Check(x.rank() >= 2, "[", ctx.Where(), "] expected N x C x …, got ",
        ToString(x.shape()));
  AxisView v = Channels(ctx, x);
  if (groups < 0) groups = v.n;
  Check(groups > 0 ? v.n % groups == 0 : v.n == 0, "[", ctx.Where(),
        "] expected groups that divide ", v.n, " channels, got ", groups);
  return {v, groups};
}

}  // namespace onnx_fp8
