// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "graph/graph.h"

namespace onnx_fp8 {

// What a GPU copies to multiply the operands of an FP8 product, which must have
// K along their rows and sizes that are multiples of 16: "a turned, k 50 to
// 64". An operand whose size is padded is copied with zeros, unless its
// quantizer writes the zeros (pad_operands.h): "k 50 to 64 by the quantizers".
// If m or n is padded, the result is cut. Operands with MX scales are decoded
// into a copy, because Hopper has no such product. "" if nothing is
// copied, and for other nodes. REQUIRES: concrete shapes.
std::string ProductCopies(const Node& node);

}  // namespace onnx_fp8
