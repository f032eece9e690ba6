// SPDX-License-Identifier: Apache-2.0
//
// Facts of ops, which passes and reports ask for. Each op has one row: an op of
// ONNX in op_facts.cc, our own op beside its schema. How a kernel uses memory
// and measures amaxes is said where a provider registers it (KernelTraits).
#pragma once

#include "graph/flops.h"
#include "graph/graph.h"

namespace onnx_fp8 {

enum class OpKind {
  kOther,
  kProduct,        // of float matrices: FP8 may take its place
  kScaledProduct,  // of FP8 matrices
  kAttention,
  kAttentionGrad,
  kQuantize,    // to FP8
  kDequantize,  // from FP8
  kScaleUpdate,
  kParameterUpdate,
};

struct OpFacts {
  OpKind kind = OpKind::kOther;
  double (*flops)(const Node& node) = ElementFlops;
  int gradient = -1;  // the operand of a kParameterUpdate that holds it
};

// An op without a row is an element-wise one.
const OpFacts& FactsOf(const Node& node);

}  // namespace onnx_fp8
