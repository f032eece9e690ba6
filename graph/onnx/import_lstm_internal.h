// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "graph/builder.h"

namespace onnx_fp8 {

// The results (Y, Y_h, Y_c) of com.microsoft.DynamicQuantizeLSTM, an LSTM with
// 8-bit weights, as a Scan of integer products: the input is rounded to 8 bits
// as a whole, the state in each step. Errors: sequence_lens, peepholes, other
// activations.
std::vector<Value*> ImportDynamicQuantizeLstm(Builder& b, Node& node);

}  // namespace onnx_fp8
