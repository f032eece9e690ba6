// SPDX-License-Identifier: Apache-2.0
//
// The part of a body that draws a number for each element, as
// base/stochastic_rounding.h does.
#pragma once

#include <string>
#include <vector>

#include "graph/schemas.h"

namespace onnx_fp8 {

// `share`: double in [0, 1), one axis: the draw of each element of x in
// 2^16ths. The body has x (float), seed and update (both int64 of rank 0) and
// the attributes DrawAttributes. Other names: zero, one (int64 0 and 1), all
// (int64[1] {-1}), and more.
std::string DrawText();

// `power`: the power of two in `magnitude`, both double (Rump, Ogita and Oishi
// 2008, Algorithm 3.5, which is exact in double for all floats).
inline constexpr char kPowerOfTwoText[] = R"(
  phi = Constant <value = double {4503599627370497}> ()
  below_one = Constant <value = double {0.9999999999999999}> ()
  q = Mul (magnitude, phi)
  q_down = Mul (q, below_one)
  power = Sub (q, q_down)
)";

// `stream` (32 bits) is the tensor's; the others are ElementPlaces.
std::vector<AttributeDefinition> DrawAttributes();

// Checks these attributes, and that `seed` and the operand behind it are an
// int64 of rank 0 each.
void CheckDraws(const Node& node, size_t seed);

}  // namespace onnx_fp8
