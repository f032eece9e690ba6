// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/stochastic_rounding.h"
#include "onnx_fp8/shape.h"
#include "onnx_fp8/tensor.h"

namespace onnx_fp8 {

// An axis that consists of `blocks` equal blocks; each rank has an equal part
// of each block, in the order of the ranks. (A layer that computes q, k and v
// at once has three blocks.) The ranks times the blocks divide the axis; an
// axis of one block may have any size, and the last parts then end with zeros.
struct AxisSplit {
  int64_t axis = 0;
  int64_t blocks = 1;

  bool operator==(const AxisSplit&) const = default;
};

// Whether the ranks have equal parts without zeros behind them.
bool IsEven(const Shape& shape, const AxisSplit& split, int64_t ranks);

// Consecutive elements that belong to one rank. If the split is even, element i
// belongs to rank (i / chunk) mod ranks, which a Reshape does not change.
int64_t ChunkOf(const Shape& shape, const AxisSplit& split, int64_t ranks);

Shape PartOf(Shape shape, const AxisSplit& split, int64_t ranks);

// The part of rank `rank`: a copy, on the host.
Tensor PartOf(const Tensor& whole, const AxisSplit& split, int64_t rank,
              int64_t ranks);

// Copies the part of rank `rank`, without zeros at its end, to its place in
// `whole`.
void PutPart(const Tensor& part, const AxisSplit& split, int64_t rank,
             int64_t ranks, Tensor* whole);

// The places of the part's elements in the whole tensor.
ElementPlaces PlacesOfPart(const Shape& whole, const AxisSplit& split,
                           int64_t rank, int64_t ranks);

}  // namespace onnx_fp8
