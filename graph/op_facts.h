// SPDX-License-Identifier: Apache-2.0
// Facts of ops, for passes and reports. Each op has one row: an op of ONNX in
// op_facts.cc, our own op beside its schema. A provider says how a kernel uses
// memory and measures amaxes when it registers the kernel (KernelTraits).
#pragma once

#include "graph/flops.h"
#include "graph/graph.h"

namespace onnx_fp8 {

enum class OpKind {
  kOther,
  kProduct,        // product of float matrices: FP8 may replace it
  kScaledProduct,  // product of FP8 matrices
  kAttention,
  kAttentionGrad,
  kQuantize,    // float to FP8
  kDequantize,  // FP8 to float
  kScaleUpdate,
  kParameterUpdate,
  kNorm,        // normalization, or its gradient
  kCollective,  // all ranks of a group run it together
};

struct OpFacts {
  OpKind kind = OpKind::kOther;
  double (*flops)(const Node& node) = ElementFlops;
  int gradient = -1;  // operand of a kParameterUpdate with the gradient
};

// An op without a row is element-wise.
const OpFacts& FactsOf(const Node& node);

}  // namespace onnx_fp8
