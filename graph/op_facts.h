// SPDX-License-Identifier: Apache-2.0
//
// What passes and reports ask of an op. Each op has one row: those of ONNX in
// op_facts.cc, our own beside their schemas. A provider adds how its kernel
// uses memory where it registers the kernel (providers/kernel.h, KernelTraits).
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

// Of an op without a row: those of an element-wise one.
const OpFacts& FactsOf(const Node& node);

}  // namespace onnx_fp8
