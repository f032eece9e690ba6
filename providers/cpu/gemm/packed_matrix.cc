// SPDX-License-Identifier: Apache-2.0
#include "providers/cpu/gemm/packed_matrix.h"

#include <algorithm>

#include "providers/cpu/gemm/kernels.h"
#include "providers/cpu/math/divide_up.h"

namespace onnx_fp8 {

// Layers of max_depth rows follow each other, each with all panels. The first
// byte of a layer is that of its first row of `columns_` floats.
void PackedMatrix::Pack(const GemmOperand& b, int64_t k, int64_t n) {
  b_ = b;
  if (b.dtype == DType::kDouble) return;
  const GemmKernels& kernels = FloatKernels();
  depth_ = k;
  columns_ = RoundUp(n, kernels.columns);
  char* to = memory_.Get(
      PanelBytes(PanelLayout::kFloat, kernels.columns, columns_, k));
  panels_ = to;
  for (int64_t at = 0; at < k; at += kernels.max_depth) {
    int64_t depth = std::min(kernels.max_depth, k - at);
    auto from =
        static_cast<const float*>(b.data) + at * (b.transposed ? 1 : b.ld);
    PackPanels(PanelLayout::kFloat, kernels.columns,
               {from, b.dtype, b.ld, !b.transposed}, n, depth, to);
    to += depth * columns_ * 4;
  }
}

// One block of the kernel for each layer of depth; a is read from its own
// memory. The layers are those of Gemm(), so the sums have the same order.
void PackedMatrix::Multiply(const GemmProblem& p) const {
  if (b_.dtype == DType::kDouble || p.k == 0) {
    GemmProblem whole = p;
    whole.b = b_;
    return Gemm(whole);
  }
  const GemmKernels& kernels = FloatKernels();
  int64_t element_row = p.a.transposed ? 1 : p.a.ld;
  int64_t element_step = p.a.transposed ? p.a.ld : 1;
  for (int64_t at = 0; at < p.k; at += kernels.max_depth) {
    int64_t layer = std::min(kernels.max_depth, depth_ - at);
    int64_t depth = std::min(layer, p.k - at);
    kernels.block({.m = p.m,
                   .n = p.n,
                   .depth = depth,
                   .a = static_cast<const float*>(p.a.data) + at * element_step,
                   .a_row = element_row * 4,
                   .a_step = element_step * 4,
                   .b = panels_ + at * columns_ * 4,
                   .b_panel = layer * kernels.columns * 4,
                   .c = static_cast<float*>(p.c),
                   .ldc = p.ldc,
                   .add = at > 0 || p.accumulate,
                   .last = at + depth == p.k,
                   .scale = p.scale,
                   .bias = nullptr});
  }
}

}  // namespace onnx_fp8
