// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "onnx_fp8/shape.h"
#include "providers/kernel.h"
#include "providers/ops/broadcast.h"

namespace onnx_fp8 {

// The axes of x, after merging adjacent axes that are both kept or both
// reduced, as two walks over x: one over the results, one over the elements
// that each result reduces.
struct ReductionLayout {
  Shape shape;         // of the result
  BroadcastPlan kept;  // strides: of x
  BroadcastPlan reduced;
  bool inner_reduced;  // x's last (merged) axis is reduced
};

// The layout of a node that reduces x. The axes are input 1, which lies on the
// host, or the attribute; all axes if they are absent or empty (unless
// noop_with_empty_axes). Errors: an axis outside of x.
ReductionLayout ReductionOf(const KernelContext& ctx, const Tensor& x);

}  // namespace onnx_fp8
