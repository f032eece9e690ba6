// SPDX-License-Identifier: Apache-2.0
//
// The domain `onnx_fp8`, version 1. Every op has a body in standard ONNX ops
// (opset 19). The body is the op's specification, runs where there is no fused
// kernel, and lets any ONNX runtime run a written file.
//
// Rules for a body: see docs/design.md, "Our own ops". In short: no optional
// inputs or outputs, every declared attribute given on the node, casts instead
// of QuantizeLinear, Reciprocal(x) instead of Div(1, x).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "graph/op_facts.h"

namespace onnx_fp8 {

enum class AttributeKind { kInt, kFloat, kInts, kString };

struct AttributeDefinition {
  const char* name;
  AttributeKind kind;
};

struct OpDefinition {
  const char* name;
  std::vector<AttributeDefinition> attributes;
  // The ONNX function in ONNX's text form, without its header:
  // "(dy, y) => (dx) { t = Mul(dy, y) … }"; attributes by reference
  // ("Cast<to: int = @to>").
  const char* body;
  // Sets dtype and shape of the node's outputs from its inputs (whose shapes
  // may be unknown). Errors: operands that do not fit.
  void (*infer)(Node& node);
  OpFacts facts;
};

// One list per file of graph/schemas/.
std::vector<OpDefinition> AttentionOps();        // schemas/attention.cc
std::vector<OpDefinition> CastStatisticsOps();   // schemas/cast_statistics.cc
std::vector<OpDefinition> CollectiveOps();       // schemas/collectives.cc
std::vector<OpDefinition> FusedOps();            // schemas/fused.cc
std::vector<OpDefinition> FusedQuantizeOps();    // schemas/fused_quantize.cc
std::vector<OpDefinition> LossOps();             // schemas/losses.cc
std::vector<OpDefinition> MasterOps();           // schemas/masters.cc
std::vector<OpDefinition> MomentOps();           // schemas/moments.cc
std::vector<OpDefinition> RotaryOps();           // schemas/rotary.cc
std::vector<OpDefinition> RoundStochasticOps();  // schemas/round_stochastic.cc
std::vector<OpDefinition> RoundToOps();          // schemas/round_to.cc
std::vector<OpDefinition> QuantizeOps();         // schemas/quantize.cc
std::vector<OpDefinition> QuantizeBlockOps();    // schemas/quantize_block.cc
std::vector<OpDefinition> QuantizePaddedOps();   // schemas/quantize_padded.cc
std::vector<OpDefinition> ProductSumOps();       // schemas/product_sums.cc
std::vector<OpDefinition> GradientOps();         // schemas/gradients.cc
std::vector<OpDefinition> OptimizerOps();        // schemas/optimizers.cc
std::vector<OpDefinition> StraightThroughOps();  // schemas/straight_through.cc

// One of these ops by name; null: there is none.
const OpDefinition* FindOp(std::string_view name);
std::vector<std::string> OpNames();

// Makes the ops known to ONNX's checker and inliner. Idempotent.
void RegisterSchemas();

}  // namespace onnx_fp8
