// SPDX-License-Identifier: Apache-2.0
//
// Flat token files (.bin): unsigned little-endian integers, one per token, no
// header.
#pragma once

#include <string>

#include "onnx_fp8/tensor.h"

namespace onnx_fp8 {

// All tokens, (n,) kUInt16 or kUInt32, mapped. Errors: another dtype, no
// tokens, a length that is no multiple of the token size; all name the file.
Tensor ReadTokens(const std::string& path, DType dtype);

// Number of windows of seq_len + 1 tokens in `tokens`. Neighbors share one
// token, because a window's last token is only a label. Tokens left over at the
// end are dropped. REQUIRES: seq_len > 0.
int64_t NumWindows(const Tensor& tokens, int64_t seq_len);

// Window i: the inputs are tokens i·seq_len … i·seq_len + seq_len - 1, the
// labels are each the token after. Writes seq_len elements to each. REQUIRES: i
// in range.
void CopyWindow(const Tensor& tokens, int64_t seq_len, int64_t i,
                int64_t* inputs, int64_t* labels);

// Marks the documents of a row of n tokens, which `eod` ends. `numbers` gets
// the number of each token's document, from 0, and `places` its place in the
// document, from 0. A document that begins before the row begins with the row
// here. The label of an end belongs to another document and becomes `ignored`.
void MarkDocuments(const int64_t* tokens, int64_t n, int64_t eod,
                   int64_t ignored, int64_t* numbers, int64_t* places,
                   int64_t* labels);

}  // namespace onnx_fp8
