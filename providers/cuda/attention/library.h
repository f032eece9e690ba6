// SPDX-License-Identifier: Apache-2.0
//
// Attention by a library: cuDNN, in cudnn*.cc. Without its headers there is
// none (no_library.cc). Tests of the emulated device have one of their own.
#pragma once

#include <cuda_runtime_api.h>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

namespace onnx_fp8::cuda {

// Elements from one batch, head, row to the next; columns follow each other.
struct LibraryStrides {
  int64_t batch, head, row;
  auto operator<=>(const LibraryStrides&) const = default;
};

// Attention of bfloat16, without a bias. Sizes are as in AttentionSizes; values
// are as wide as keys. Row i of a causal one sees the columns up to i.
// Probabilities and gradients of scores are rounded to bfloat16.
struct LibraryProblem {
  bool backward;
  int64_t b, t, s, heads, groups, d;
  float scale;  // no NaN
  bool causal;
  bool keeps_lse;  // of the forward pass; the backward pass always reads it
  // Backward pass: equal operands give equal bits. Without it the pass is
  // faster and needs less workspace.
  bool deterministic = true;
  // dy has the strides of y; dq, dk and dv have the strides of q, k and v. lse
  // is packed.
  LibraryStrides q, k, v, y;
  auto operator<=>(const LibraryProblem&) const = default;
};

// On the device, aligned to 16 bytes.
struct LibraryForward {
  const void *q, *k, *v;
  void* y;
  float* lse;  // null unless the problem keeps it
};
struct LibraryBackward {
  const void *dy, *q, *k, *v, *y;
  const float* lse;
  void *dq, *dk, *dv;
};

// A queue's handle of the library and the plans that it has made.
class AttentionLibrary {
 public:
  AttentionLibrary();
  ~AttentionLibrary();
  AttentionLibrary(const AttentionLibrary&) = delete;
  AttentionLibrary& operator=(const AttentionLibrary&) = delete;

  // Bytes of the workspace, whose address is a multiple of 256. nullopt: there
  // is no library, or it can't compute the problem. The first call for a
  // problem takes up to a second.
  std::optional<size_t> Workspace(const LibraryProblem& problem);

  // Both functions add the work to the stream. REQUIRES: Workspace() has
  // returned a size for the problem. Errors: the library's.
  void Run(const LibraryProblem& problem, const LibraryForward& memory,
           void* workspace, cudaStream_t stream);
  void Run(const LibraryProblem& problem, const LibraryBackward& memory,
           void* workspace, cudaStream_t stream);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace onnx_fp8::cuda
