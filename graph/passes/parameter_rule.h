// SPDX-License-Identifier: Apache-2.0
//
// Structure: which tensors of a file are weights by the way in which the graph
// reads them. trained_parameters.h says which other evidence there is.
#pragma once

#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "graph/constants.h"

namespace onnx_fp8 {

// How a tensor meets data, from the weakest evidence of a weight to the
// strongest.
enum class ParameterUse {
  kArithmetic,  // an element-wise op, or beside data in a view
  kLookup,      // data choose its rows
  kLayer,       // an operand of a product or of a norm
};

struct Meeting {
  std::string where;  // the first node, for people
  ParameterUse use = ParameterUse::kArithmetic;
  bool lookup = false;  // data choose its rows somewhere
};

struct ParameterRule {
  std::unordered_map<std::string, Meeting> found;
  // Name → the node that makes it a constant.
  std::unordered_map<std::string, std::string> lost;
  std::set<std::string> running;  // statistics of training BatchNormalizations
  // Single numbers of rank 0 that data are multiplied by, divided by or raised
  // to.
  std::set<std::string> factors;
};

// A float constant (an initializer, or a Constant node outside of subgraphs)
// travels forward through views (Resize, Pad, QuantizeLinear and
// DequantizeLinear among them) and element-wise ops with other such constants.
// It is found if it arrives in this way
// - at an operation together with a live value, which depends on a float graph
//   input or on a weight found before. Bounds and fill values do not count, nor
//   does a single number at Max, Min and Pow;
// - at a product (MatMul, Gemm, Conv, Einsum, recurrent layers) with values
//   computed from an integer input: one-hot tokens, pixels. Positions and masks
//   are such values too, but they meet tables in other ops; in products they
//   meet frequencies, which fall, and the result is an angle of sines;
// - at a lookup (Gather) with computed indices.
// `takes_numbers`: an initializer of rank 0 with a parameter's name counts at
// Mul, Div and Pow.
ParameterRule FindUses(const Graph& graph,
                       const std::vector<HeldTensor>& tensors,
                       bool takes_numbers);

}  // namespace onnx_fp8
