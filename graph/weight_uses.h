// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "graph/graph.h"

namespace onnx_fp8 {

// What the nodes that bring a weight together with data use it for.
enum class WeightUse {
  kNone,   // no such node
  kOther,  // beside data, as a class token is
  kScale,  // a factor of data, element by element
  kBias,   // added to data
  kNorm,   // scale or shift of a normalization
  kTable,  // data choose its rows, as in an embedding
  kLayer,  // matrix or filter of a product, a convolution or a recurrent layer
};

// The use in a list of uses, for people: "biases".
const char* Name(WeightUse use);

// The uses of a graph's parameters, by name. A parameter also has a use if the
// node reads a value that is computed from parameters and constants alone. Of
// several uses the last one in WeightUse counts, so a table that is the last
// layer's matrix too is a layer's. REQUIRES: roles set, nodes sorted.
std::map<std::string, WeightUse> WeightUses(const Graph& model);

}  // namespace onnx_fp8
