// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "graph/fp8/gemm_decision.h"
#include "graph/graph.h"

namespace onnx_fp8 {

// A matrix that a GEMM multiplies.
struct GemmMatrix {
  Value* value = nullptr;   // without transposes
  bool transposed = false;  // the GEMM reads value's transpose
  bool swaps_last = false;  // ... or value with its last two axes swapped
  int slot = 0;             // the GEMM's input
};

// The operands of a graph's GEMMs, as GEMMs in FP8 read them. GEMMs that read
// one matrix in several views have one value for it here.
class GemmMatrices {
 public:
  explicit GemmMatrices(const std::vector<GemmDecision>& decisions);

  // The left and the right operand. W @ x with leading axes on x is (x^T @
  // W^T)^T: then x comes first. REQUIRES: a GEMM of the decisions.
  std::array<GemmMatrix, 2> Of(const GemmInfo& gemm) const;

 private:
  void AddColumns(const Node& node);
  Value* Whole(Value* rows) const;

  // By operand of a layer: its columns, which are the rows of the weight. They
  // are known even if the operand's shape is not.
  std::unordered_map<const Value*, int64_t> columns_;
};

}  // namespace onnx_fp8
