// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
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

// A name of the scale of a matrix: some layer reads it as this operand of this
// GEMM.
struct ScaleName {
  std::string fqn, gemm, operand;  // as ScaleSlot's
  // Which of the matrices that the layer reads there, in the graph's order.
  int64_t occurrence = 0;
};

// The names of each operand, by GEMM and input. GEMMs that read one matrix
// share one list of names.
using ScaleNames = std::map<std::pair<const Node*, int>,
                            std::shared_ptr<const std::vector<ScaleName>>>;

// Names the operands of all GEMMs that may run in FP8, after every layer that
// reads the same matrix, in the graph's order. The first name counts for a new
// scale, and any for one that is kept already: other graphs of a model may have
// other layers, or another order. A layer counts even where the filter keeps it
// out of FP8, so names are the same under any filter. `recipe`: the main one.
ScaleNames NameScales(const std::vector<GemmDecision>& decisions,
                      const GemmMatrices& matrices, const Recipe& recipe);

// "weight", "grad_output" or "input".
const char* OperandName(const GemmInfo& gemm, int slot);

}  // namespace onnx_fp8
