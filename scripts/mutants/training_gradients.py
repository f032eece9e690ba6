# SPDX-License-Identifier: Apache-2.0
"""Mutants of training/gradients/."""
from mutant import M, training

CONVS = training("*Convs.*")
PRODUCTS = training("*Products.*")

MUTANTS = (
    M("Conv: dw with stride for dilation", "training/gradients/conv.cc",
      "std::swap(swapped.strides, swapped.dilations);", "", CONVS),
    M("Conv: groups of dw are not moved", "training/gradients/conv.cc",
      "std::swap(perm[0], perm[2]);", "", CONVS),
    M("Einsum: letters that come twice are kept",
      "training/gradients/einsum.cc",
      "std::ranges::count(text, ch) == 1) e.output",
      "std::ranges::count(text, ch) >= 1) e.output", PRODUCTS),
    M("Where: both branches get the condition's dy",
      "training/gradients/elementwise.cc", "{c.In(0), zero, c.Dy()}",
      "{c.In(0), c.Dy(), zero}", training("Autodiff.*:*Elementwise.*")),
    M("Dropout: dx is scaled down", "training/gradients/elementwise.cc",
      "b.Scalar(1 / (1 - (ratio", "b.Scalar(1 * (1 - (ratio",
      training("Autodiff.Dropout*:*Elementwise.*")),
    M("cross entropy: ignored samples get a gradient",
      "training/gradients/loss.cc", "Masked(b, classes.valid, miss)", "miss",
      training("*Losses.*:Autodiff.Ignored*")),
    M("MatMul: dx without transB", "training/gradients/matmul.cc",
      "Gemm(b, dy2, w, false, true)", "Gemm(b, dy2, w, false, false)",
      PRODUCTS),
    M("Gemm: da without transA", "training/gradients/matmul.cc",
      "Gemm(b, B, dy, tb, true, alpha)", "Gemm(b, B, dy, tb, false, alpha)",
      PRODUCTS),
    M("Gemm: db of transB ignores transA", "training/gradients/matmul.cc",
      "Gemm(b, dy, A, true, ta, alpha)", "Gemm(b, dy, A, true, false, alpha)",
      PRODUCTS),
    M("Slice: negative steps start at the wrong end",
      "training/gradients/movement.cc", "start += (count - 1) * step;", "",
      training("*Movement.*")),
    M("Pad: reflect repeats", "training/gradients/pad.cc",
      "j = std::min(j, period - j);", "j = std::min(j, n - 1);",
      training("*Movement.*")),
    M("ReduceProd: two zeros have a slope", "training/gradients/reduce.cc",
      'Masked(b, b.Op("Equal", {zeros, one}), product)', "product",
      training("*Reductions.*")),
    M("Conv: begin pads are lost", "training/gradients/window.cc",
      "reach - w.begin[i] - large[i + 2]", "reach - large[i + 2]", CONVS),
)
