// SPDX-License-Identifier: Apache-2.0
#include "providers/cpu/fp8/block_scales.h"

#include "base/check.h"
#include "onnx_fp8/float8.h"

namespace onnx_fp8 {

std::vector<float> ScalesIn(const KernelContext& ctx, size_t input,
                            const BlockGrid& grid) {
  const Tensor& t = ctx.In(input);
  Check(t.dtype() == DType::kFloat || t.dtype() == DType::kE8M0, "[",
        ctx.Where(), "] expected scales of float or float8e8m0, got ",
        Name(t.dtype()));
  Check(t.shape() == Shape({grid.down, grid.across}) ||
            (t.rank() == 0 && grid.blocks() == 1),
        "[", ctx.Where(), "] expected scales of shape [", grid.down, ",",
        grid.across, "], got ", ToString(t.shape()));
  std::vector<float> scales(static_cast<size_t>(t.size()));
  for (int64_t i = 0; i < t.size(); ++i) {
    scales[static_cast<size_t>(i)] = t.dtype() == DType::kFloat
                                         ? t.data<float>()[i]
                                         : Decode(t.data<E8M0>()[i]);
  }
  return scales;
}

}  // namespace onnx_fp8
