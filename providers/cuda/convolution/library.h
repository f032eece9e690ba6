// SPDX-License-Identifier: Apache-2.0
//
// Convolutions by a library: cuDNN, in cudnn*.cc. Without its headers there is
// none (no_library.cc). Tests of the emulated device have one of their own.
//
// Tensors lie as ONNX has them, channels before space, which their strides say.
// cuDNN's engines of tensor cores read channels last: they copy operands into
// their workspace and results out of it. Its engines of floats need no copy.
#pragma once

#include <cuda_runtime_api.h>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "providers/cuda/core/floats.h"

namespace onnx_fp8::cuda {

enum class ConvolutionPass : uint8_t {
  kForward,         // y of x and the weight
  kInputGradient,   // x, of y and the weight
  kWeightGradient,  // the weight, of x and y
};

// Elements from one place of an axis to the next.
struct ConvolutionTensor {
  std::vector<int64_t> sizes, strides;
  auto operator<=>(const ConvolutionTensor&) const = default;
};

// The tensors are x (N,C,space…), weight (M,C/groups,window…) and y
// (N,M,space…), with two or three axes of space. The other vectors have an
// element per axis of space: position o of y reads x at o · stride + k ·
// dilation - pad for tap k. There are as many positions as fit into x with its
// pads.
struct ConvolutionProblem {
  ConvolutionPass pass;
  Storage storage;  // all tensors; sums are floats
  ConvolutionTensor x, weight, y;
  std::vector<int64_t> stride, dilation, pad, pad_end;
  auto operator<=>(const ConvolutionProblem&) const = default;
};

// On the device, aligned to 16 bytes. The pass writes one of them.
struct ConvolutionMemory {
  void *x, *weight, *y;
};

// A queue's handle of the library and the plans that it has made.
class ConvolutionLibrary {
 public:
  ConvolutionLibrary();
  ~ConvolutionLibrary();
  ConvolutionLibrary(const ConvolutionLibrary&) = delete;
  ConvolutionLibrary& operator=(const ConvolutionLibrary&) = delete;

  // Bytes of the workspace, whose address is a multiple of 256. nullopt: there
  // is no library, or it can't compute the problem with sums of floats and the
  // same bits every time. The first call for a problem takes up to a second.
  std::optional<size_t> Workspace(const ConvolutionProblem& problem);

  // Adds the work to the stream. Equal operands give equal bits. REQUIRES: a
  // Workspace for the problem. Errors: the library's.
  void Run(const ConvolutionProblem& problem, const ConvolutionMemory& memory,
           void* workspace, cudaStream_t stream);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace onnx_fp8::cuda
