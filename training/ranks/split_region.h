// SPDX-License-Identifier: Apache-2.0
//
// Tensor parallel layers: values of a forward graph of which each rank of the
// axis tp holds a part. Layers with weights begin and end such a region of the
// graph: one with a part of its outputs (column parallel) and one with a part
// of its inputs, whose products the ranks add up (row parallel), as in
// Megatron-LM (Shoeybi et al. 2019, section 3).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "graph/graph.h"
#include "training/ranks/axis_split.h"

namespace onnx_fp8 {

// A product of activations with a weight (K,N), or (N,K) with transB.
bool IsLayer(const Node& node);

// The axis of `shape` that a split of `from` becomes when elements keep their
// order: rank r has the elements i with (i / chunk) mod ranks == r. Nothing: no
// axis has its parts.
std::optional<AxisSplit> Reshaped(const Shape& from, const AxisSplit& split,
                                  const Shape& shape, int64_t ranks);

// Regions of divided layers, between which the ranks divide the tokens.
struct DividedLayers {
  std::unordered_set<const Value*> values;
  // Nodes whose whole result is a sum over the ranks: layers with a part of
  // their inputs, and Gathers from a part of a table's rows.
  std::unordered_set<const Node*> summed;
};

// An operand of which the node reads a part, though it is whole.
struct SlicedOperand {
  Node* node;
  size_t input;
  AxisSplit split;
};

// Splits `first`, and all values that must be split with it.
class SplitRegion {
 public:
  // `whole`: values that must stay whole, such as outputs.
  SplitRegion(int64_t ranks, const std::unordered_set<const Value*>& whole)
      : ranks_(ranks), whole_(whole) {}

  // Sequence parallel (Korthikanti et al. 2022): the region lies between these
  // and divides the first axis of layers' inputs and outputs. It ends where a
  // divided layer reads a value, and begins where one gives a value.
  void DivideTokens(const DividedLayers* layers) { layers_ = layers; }

  // Parts may end with zeros, as parts of a vocabulary of any size do.
  void AllowUneven() { uneven_ = true; }

  // The reason why the value can't be split; "" if the region is complete.
  std::string Grow(Value* first, const AxisSplit& split);

  const std::vector<Value*>& values() const { return order_; }
  const AxisSplit* Find(const Value* value) const {
    auto it = splits_.find(value);
    return it == splits_.end() ? nullptr : &it->second;
  }
  // As DividedLayers has them.
  const std::vector<Node*>& summed() const { return summed_; }
  const std::vector<SlicedOperand>& sliced() const { return sliced_; }
  // CrossEntropy nodes with a part of the classes.
  const std::vector<Node*>& losses() const { return losses_; }

 private:
  friend class SplitRules;

  int64_t ranks_;
  bool uneven_ = false;
  const DividedLayers* layers_ = nullptr;
  std::unordered_set<const Value*> whole_;
  std::unordered_map<const Value*, AxisSplit> splits_;
  std::vector<Value*> order_;
  std::vector<Node*> summed_, losses_;
  std::vector<SlicedOperand> sliced_;
};

}  // namespace onnx_fp8
