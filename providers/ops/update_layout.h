// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.h"
#include "providers/kernel.h"

namespace onnx_fp8 {

// Operands and results of an update's kernel. The body's come first:
//   parameter, gradient, moments, [step], lr, grad_scale, ok → parameter,
//   moments
// Operands and results of joined codecs follow (join_masters.h,
// join_moments.h):
//   [correction, or seed and update, of the parameter],
//   [seed, update of moments], [scale of each moment], [scale of codes] →
//   [correction], [scale of each moment], [UpdateAmax's result],
//   [codes of the parameter, their scale, amax]   (join_weight_codes.h)
struct UpdateLayout {
  size_t moments;
  bool has_step;
  DType kept = DType::kUndefined;        // moments as bfloat16 or codes
  bool halves = false;                   // the parameter is a bfloat16
  DType correction = DType::kUndefined;  // of the parameter
  bool measured = false;                 // UpdateAmax's result is one
  bool quantizes = false;  // so are FP8 codes of the new parameter

  size_t tensors() const { return 2 + moments; }
  // The first operand of the parameter's codec.
  size_t master() const { return tensors() + (has_step ? 4 : 3); }
  bool splits() const { return correction != DType::kUndefined; }
  bool draws_master() const { return halves && !splits(); }
  bool coded_moments() const { return kept != DType::kUndefined; }
  bool coded() const { return halves || coded_moments(); }
  // The first operand of the moments' draws.
  size_t seed() const {
    return master() + (splits() ? 1 : 0) + (draws_master() ? 2 : 0);
  }
  bool draws() const { return coded_moments() && has_step; }
  size_t scales() const { return IsFloat8(kept) ? moments : 0; }
  size_t scales_in() const { return seed() + (draws() ? 2 : 0); }
  size_t code_scale_in() const { return scales_in() + scales(); }
  size_t inputs() const { return code_scale_in() + (quantizes ? 1 : 0); }
  size_t correction_out() const { return 1 + moments; }
  size_t scales_out() const { return correction_out() + (splits() ? 1 : 0); }
  size_t amax_out() const { return scales_out() + scales(); }
  size_t codes_out() const { return amax_out() + (measured ? 1 : 0); }
  size_t outputs() const { return codes_out() + (quantizes ? 3 : 0); }
};

// Errors: a correction of another dtype.
inline UpdateLayout LayoutOf(const KernelContext& ctx, size_t moments,
                             bool has_step) {
  UpdateLayout layout{.moments = moments, .has_step = has_step};
  if (moments > 0 && ctx.HasIn(2)) {
    const DType dtype = ctx.In(2).dtype();
    if (dtype == DType::kBFloat16 || dtype == DType::kE4M3) layout.kept = dtype;
  }
  layout.halves = ctx.HasIn(0) && ctx.In(0).dtype() == DType::kBFloat16;
  if (layout.halves) {
    layout.correction = static_cast<DType>(ctx.Int("correction", 0));
    Check(!layout.splits() || layout.correction == DType::kInt8 ||
              layout.correction == DType::kInt16,
          "[", ctx.Where(), "] expected a correction of int8 or int16, got ",
          Name(layout.correction));
  }
  layout.quantizes = ctx.Has("to");
  layout.measured = layout.draws() && ctx.num_outputs() == layout.outputs() + 1;
  return layout;
}

// KernelTraits::in_place of all layouts of an update. A pair of one layout may
// name other tensors in another layout. These have elements of other sizes,
// which never share memory, or they are the scale of codes, which a kernel
// reads before it writes anything, or an amax, which it writes last.
inline std::vector<std::pair<int, int>> UpdatesInPlace(size_t moments,
                                                       bool has_step) {
  std::vector<std::pair<int, int>> pairs;
  const auto add = [&](size_t in, size_t out) {
    pairs.emplace_back(static_cast<int>(in), static_cast<int>(out));
  };
  add(0, 0);
  for (size_t i = 0; i < moments; ++i) add(2 + i, 1 + i);
  for (DType kept : {DType::kUndefined, DType::kBFloat16, DType::kE4M3}) {
    for (DType correction : {DType::kUndefined, DType::kInt8}) {
      for (bool halves : {false, true}) {
        const UpdateLayout layout{.moments = moments,
                                  .has_step = has_step,
                                  .kept = kept,
                                  .halves = halves,
                                  .correction = correction};
        if (layout.splits()) add(layout.master(), layout.correction_out());
        for (size_t i = 0; i < layout.scales(); ++i) {
          add(layout.scales_in() + i, layout.scales_out() + i);
        }
      }
    }
  }
  std::ranges::sort(pairs);
  const auto again = std::ranges::unique(pairs);
  pairs.erase(again.begin(), again.end());
  return pairs;
}

}  // namespace onnx_fp8
