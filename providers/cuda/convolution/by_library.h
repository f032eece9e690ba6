// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "providers/cuda/convolution/library.h"
#include "providers/ops/window.h"

namespace onnx_fp8::cuda {

// Sizes of a Conv or ConvTranspose node: images, groups, and the channels of x
// and of y in one group.
struct ConvolutionSizes {
  bool transposed;
  int64_t n, group, c, m;
  Window w;
};

struct ConvolutionOperands {
  FloatsIn x, weight, bias;  // the bias may have no data
  FloatsOut y;
};

// The library's problem. Training emits the gradient of a weight as a Conv: the
// first two axes of x, of the weight and of y have changed places, and strides
// are dilations. The library splits the long sums of a gradient, so a Conv is
// read as one if its window, dilated, is larger than its result and its sums
// have more elements than a channel of the result. With several groups, x is
// then a copy of the node's, unless there is one image, as in a depthwise
// convolution: in the node's x the channels of a group have no common stride.
ConvolutionProblem ProblemOf(const ConvolutionSizes& z, Storage storage);

// The bytes of the library's workspace; nullopt: it can't compute the node, or
// there is no device. The operands need no data.
std::optional<size_t> LibraryWorkspace(const KernelContext& ctx,
                                       const ConvolutionSizes& z,
                                       const ConvolutionOperands& operands);

// Computes y, which is not empty, by the library of library.h. False: it can't
// compute this node, and nothing was done. Operands and result must be kept
// alike, and no pad be negative. Traffic of its own: y is read and written once
// more where there is a bias, which rounds numbers in 16 bits twice, and where
// it is the gradient of a weight; so is x where it is copied.
bool ConvolveByLibrary(const KernelContext& ctx, const ConvolutionSizes& z,
                       const ConvolutionOperands& operands);

}  // namespace onnx_fp8::cuda
