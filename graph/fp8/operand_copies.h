// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "graph/builder.h"
#include "graph/fp8/fp8_plan.h"
#include "graph/fp8/scale_names.h"
#include "graph/graph.h"

namespace onnx_fp8 {

// A quantized copy of a matrix of R rows and C columns.
struct Quantized {
  Value* q = nullptr;
  Value* scale = nullptr;
  // Size of the blocks of the matrix that share a scale; 0: the whole axis.
  int64_t block_rows = 0, block_columns = 0;

  bool one_scale() const { return block_rows == 0 && block_columns == 0; }
};

// The quantized copies in a graph. Readers that want the same copy of the same
// value share one.
class OperandCopies {
 public:
  // `names`: of all operands. `known`: as Fp8Rewrite's.
  // Slots, amaxes and labels go to `plan`.
  OperandCopies(Graph& graph, const StaticScales& scales, Fp8Plan* plan,
                const ScaleNames& names, const std::vector<ScaleSlot>* known);

  // The copy of x, which is (a view of) the GEMM's input `slot`. The GEMM sums
  // over x's last axis (`along_columns`) or over its rows.
  Quantized Get(Builder& b, const GemmDecision& decision, Value* x, int slot,
                bool along_columns);

 private:
  using Key =
      std::tuple<Value*, DType, Scaling, ScaleRounding, int64_t, int64_t>;

  Quantized Make(Builder& b, const GemmDecision& decision, Value* x, int slot,
                 Quantized copy);
  std::vector<Value*> MakeFromBlocks(Builder& b, const Recipe& recipe,
                                     const OperandRecipe& how, Value* x,
                                     const Quantized& copy);
  Value* Source(Builder& b, const GemmDecision& decision, Value* x,
                const OperandRecipe& how);
  size_t Position(const GemmDecision& decision, int slot);
  size_t AddSlot(const ScaleSlot& slot, const std::vector<ScaleSlot>& possible);
  float StaticScale(const std::vector<ScaleSlot>& possible) const;

  Graph& graph_;
  const StaticScales& scales_;
  Fp8Plan* plan_;
  const ScaleNames& names_;
  bool laid_out_;
  std::map<std::string, size_t> position_;
  std::map<Key, Quantized> copies_;
  std::map<Value*, Quantized> first_;  // first copy of each value
};

}  // namespace onnx_fp8
