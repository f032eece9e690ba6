// SPDX-License-Identifier: Apache-2.0
//
// The part of a body that draws a number for each element, as
// base/stochastic_rounding.h does.
#pragma once

#include <string>
#include <vector>

#include "base/stochastic_rounding.h"
#include "graph/schemas.h"

namespace onnx_fp8 {

// `share`: double in [0, 1), one axis: the draw of each element of x in
// 2^16ths. The body has x (float), seed and update (both int64 of rank 0) and
// the attributes DrawAttributes. Other names: zero, one (int64 0 and 1), all
// (int64[1] {-1}), and more.
std::string DrawText();

// `power`: the largest power of two that is at most `magnitude` (both double),
// from 2^least to 2^(least + 2^bits - 1). It is found bit by bit of the
// exponent: onnxruntime reorders the factors of shorter formulas.
std::string PowerOfTwoText(int least, int bits);

// `stream` (32 bits) is the tensor's; the others are ElementPlaces.
std::vector<AttributeDefinition> DrawAttributes();

// Their values for the state of that name, of which the node has the elements
// `at`.
Attributes DrawsOf(const std::string& state, const ElementPlaces& at);

// Checks these attributes, and that `seed` and the operand behind it are an
// int64 of rank 0 each.
void CheckDraws(const Node& node, size_t seed);

}  // namespace onnx_fp8
