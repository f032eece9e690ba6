// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/mesh.h"
#include "graph/builder.h"

namespace onnx_fp8 {

// Axes of a mesh, by their names.
using Axes = std::vector<std::string>;

// Axes whose ranks have other samples.
inline const Axes kSampleAxes = {kDataRanks, kReplicaRanks};

// The sum or the maximum of x over the ranks of these axes: one AllReduce for
// each axis with several ranks. x itself if there is none.
Value* SumOver(Builder& b, Value* x, const Mesh& mesh, const Axes& axes);
Value* MaxOver(Builder& b, Value* x, const Mesh& mesh, const Axes& axes);

// Attributes `group` and `ranks` of a collective over one axis.
Attributes GroupOf(const Mesh& mesh, const std::string& axis);

// x with `more` rows of zeros at the end of its first axis; x itself for 0.
inline Value* WithZeroRows(Builder& b, Value* x, int64_t more) {
  if (more == 0) return x;
  std::vector<int64_t> pads(2 * x->shape->size(), 0);
  pads[x->shape->size()] = more;
  return b.Op("Pad", {x, b.Ints(pads)});
}

}  // namespace onnx_fp8
