// SPDX-License-Identifier: Apache-2.0
#include "providers/cpu/gemm/packed_matrix.h"

#include <algorithm>
#include <cassert>

#include "providers/ops/divide_up.h"

namespace onnx_fp8 {

// Layers of max_depth rows follow each other, each with all panels. A layer
// begins after `columns_` elements for each row before it.
void PackedMatrix::Pack(const GemmOperand& b, int64_t k, int64_t n) {
  b_ = b;
  if (b.dtype == DType::kDouble) return;
  bool floats = b.dtype == DType::kFloat;
  kernels_ = floats ? &FloatKernels() : &Bf16Kernels();
  PanelLayout layout = kernels_->b_layout;
  assert(floats == (layout == PanelLayout::kFloat));
  auto size = static_cast<int64_t>(PanelElementBytes(layout));
  depth_ = k;
  columns_ = RoundUp(n, kernels_->columns);
  char* to = memory_.Get(PanelBytes(layout, kernels_->columns, columns_, k));
  panels_ = to;
  for (int64_t at = 0; at < k; at += kernels_->max_depth) {
    int64_t depth = std::min(kernels_->max_depth, k - at);
    auto from = static_cast<const char*>(b.data) +
                at * (b.transposed ? 1 : b.ld) * size;
    PackPanels(layout, kernels_->columns, {from, b.dtype, b.ld, !b.transposed},
               n, depth, to);
    to += depth * columns_ * size;
  }
}

// One block of the kernel for each layer of depth; `a` is read from its own
// memory, or packed if its units do not lie side by side. The layers equal
// Gemm()'s, so the sums have the same order.
void PackedMatrix::Multiply(const GemmProblem& p, int64_t row,
                            int64_t column) const {
  if (b_.dtype == DType::kDouble || p.k == 0) {
    GemmProblem whole = p;
    whole.b = b_;
    int64_t at = b_.transposed ? column * b_.ld + row : row * b_.ld + column;
    whole.b.data = static_cast<const char*>(b_.data) +
                   at * static_cast<int64_t>(ByteSize(b_.dtype));
    return Gemm(whole);
  }
  const GemmKernels& kernels = *kernels_;
  auto size = static_cast<int64_t>(PanelElementBytes(kernels.b_layout));
  int64_t unit =
      std::max(DepthUnit(kernels.a_layout), DepthUnit(kernels.b_layout));
  bool packs = p.a.transposed && unit > 1;
  for (int64_t k = 0; k < p.k;) {
    int64_t at = row + k, layer = at / kernels.max_depth * kernels.max_depth;
    int64_t layer_depth = std::min(kernels.max_depth, depth_ - layer);
    int64_t depth = std::min(layer + layer_depth - at, p.k - k);
    const char* a = static_cast<const char*>(p.a.data) +
                    k * (p.a.transposed ? p.a.ld : 1) * size;
    int64_t a_row = (p.a.transposed ? 1 : p.a.ld) * size;
    int64_t a_step = (p.a.transposed ? p.a.ld : unit) * size;
    if (packs) {
      thread_local Scratch scratch;
      char* panels =
          scratch.Get(PanelBytes(kernels.a_layout, kernels.rows, p.m, depth));
      PackPanels(kernels.a_layout, kernels.rows, {a, p.a.dtype, p.a.ld, true},
                 p.m, depth, panels);
      a = panels;
      a_row = a_step = 0;
    }
    int64_t b_panel = RoundUp(layer_depth, unit) * kernels.columns * size;
    kernels.block({.m = p.m,
                   .n = p.n,
                   .depth = RoundUp(depth, unit),
                   .a = a,
                   .a_row = a_row,
                   .a_step = a_step,
                   .b = panels_ + layer * columns_ * size +
                        column / kernels.columns * b_panel +
                        (at - layer) * kernels.columns * size,
                   .b_panel = b_panel,
                   .c = static_cast<float*>(p.c),
                   .ldc = p.ldc,
                   .add = k > 0 || p.accumulate,
                   .last = k + depth == p.k,
                   .scale = p.scale,
                   .bias = nullptr});
    k += depth;
  }
}

}  // namespace onnx_fp8
