// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "graph/graph.h"

namespace onnx_fp8 {

// A layer computes rows that nothing reads, if a Slice drops them: a language
// model drops the last token's logits before its loss. The Slice moves before
// the product:
//
//   y = Slice(Reshape(Gemm(x, W[, b]), (…,N)), starts, ends, axes, steps)
//   → y = Reshape(Gemm(Reshape(Slice(Reshape(x, (…,K)), …), (M',K)), W[, b]),
//                 (…,N))
//
// The product has no other reader, and the Slice leaves the last axis as it is.
// The elements of y stay the same. REQUIRES: concrete shapes, and layers in the
// form of NormalizeLinear.
void SliceBeforeProduct(Graph& graph);

}  // namespace onnx_fp8
