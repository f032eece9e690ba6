# SPDX-License-Identifier: Apache-2.0
"""Mutants of providers/cuda/convolution/ and providers/cuda/ops/."""
from mutant import M, cuda, cudnn

CONVOLUTION = cuda("*Convolution*")
LIBRARY = "providers/cuda/convolution/by_library.cc"

MUTANTS = (
    M("cuda conv: a bias of one channel",
      "providers/cuda/convolution/add_bias.cu", "i / plane % channels",
      "i / plane % channels * 0", CONVOLUTION),
    M("cuda conv: the library's bias is lost", LIBRARY,
      "if (operands.bias.data) {", "if (operands.bias.data && !ctx.HasIn(2)) {",
      CONVOLUTION),
    M("cuda conv: the library mixes dtypes", LIBRARY,
      "operands.x.kept != kept || operands.weight.kept != kept ||", "",
      CONVOLUTION),
    M("cuda conv: the library has negative pads", LIBRARY,
      "z.w.pad[a] < 0 ||", "", CONVOLUTION),
    M("cuda conv: results are too small", LIBRARY,
      "|| -ends[a] >= strides[a]", "", CONVOLUTION),
    M("cuda conv: gradients of weights keep strides", LIBRARY,
      "std::swap(p.stride, p.dilation);", "", CONVOLUTION),
    M("cuda conv: groups have one stride", LIBRARY,
      "(z.group > 1 && z.n > 1)", "(z.group > 1 && z.n > 9)", CONVOLUTION),
    M("cuda conv: no gradient of a weight is seen", LIBRARY,
      "return Window::Product(reach) > places &&",
      "return Window::Product(reach) < 0 &&", CONVOLUTION),
    M("cuda conv: sizes of x and y change places", LIBRARY,
      "p.x = Packed(z.n, m, w, w.in);", "p.x = Packed(z.n, m, w, w.out);",
      CONVOLUTION),
    M("cuda conv: kept numbers are read as floats",
      "providers/cuda/ops/conv.cu", "return Load(v.x, x + tap.x + at);",
      "return static_cast<const float*>(v.x.data)[x + tap.x + at];",
      CONVOLUTION),
    M("cuda conv: our own bias is lost", "providers/cuda/ops/conv.cu",
      "v.bias.data ? sum + Load(v.bias, channel) : sum", "sum", CONVOLUTION),
    M("cuda conv: floats on tensor cores",
      "providers/cuda/convolution/cudnn_plan.cc",
      "if (kept == Kept::kFloat) notes", "if (kept == Kept::kFloat16) notes",
      cudnn("CudnnConvolution.Floats*")),
)
