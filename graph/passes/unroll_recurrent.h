// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "graph/graph.h"
#include "onnx_fp8/budgets.h"

namespace onnx_fp8 {

// Replaces every LSTM, GRU and RNN by standard ops, time step by time step, so
// that autodiff finds their gradients and their products may run in FP8. Covers
// all that ONNX defines of the three. Per direction (letters as in
// providers/cpu/ops/recurrent.cc):
//
//   products of all steps:  Split_t(Gemm<transB=1>(x (T·B,I), W, bias))
//   in every step:          Gemm<transB=1>(h (B,H), R, from_x (B,G·H)), gates;
//                           GRU that resets first has two products, one for
//                           the gates z and r, one for the candidate
//
// W and R are views of the node's operands, and one value for all steps. Rows
// whose sequence has ended keep their state by Where. Lengths may depend on
// data; a length outside 0…T counts as the nearer of the two.
//
// An activation takes its alpha and beta from the node's lists in order;
// missing values have the default of the ONNX op of that name. REQUIRES:
// concrete shapes, nodes in execution order. Errors: operands and attributes
// that do not fit, naming the node; more nodes than `spending` has left (null:
// than the default budget).
void UnrollRecurrent(Graph& graph, Spending* spending = nullptr);

}  // namespace onnx_fp8
