// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "graph/builder.h"
#include "graph/graph.h"
#include "graph/passes/strided_view.h"

namespace onnx_fp8 {

// A layer computes each row for itself, so it can read them in any order.
// torch.nn.MultiheadAttention turns (B,T,C) into (T,B,C) before its layers and
// back behind them:
//
//   turned = Reshape(Transpose(x), (T·B,K))
//   y = Transpose(Reshape(Gemm(turned, W[, b]), (T,B,N)))
//   → y = Reshape(Gemm(Reshape(x, (B·T,K)), W[, b]), (B,T,N))
//
// The Transposes may be several nodes with Reshapes between them. The product
// has no other reader. Elements of y stay the same. A gradient of W is a sum in
// another order, and where blocks of several rows have a scale, other rows
// share one. REQUIRES: concrete shapes, and layers in the form of
// NormalizeLinear.
void KeepRowOrder(Graph& graph);

// `rows` (T·B,N) is a layer's result. If the layer reads rows that a Transpose
// has turned from (B,T) to (T,B), adds the same layer for the rows before the
// Transpose, and returns its result (B·T,N). Returns null for other values, and
// if `rows` has several readers.
Value* RowsBeforeTranspose(Builder& b, StridedViews& views, const Value* rows,
                           int64_t batch, int64_t time);

}  // namespace onnx_fp8
