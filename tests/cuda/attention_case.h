// SPDX-License-Identifier: Apache-2.0
//
// Graphs of attention, forward and backward.
#pragma once

#include <iosfwd>
#include <string>

namespace onnx_fp8 {

struct AttentionCase {
  const char* name;
  int b, t, s, heads, groups, d, e;
  const char* attributes = "causal=0, scale=0.2";
  const char* bias = nullptr;  // its shape
  bool relative = false;
  double tolerance = 1e-5;
  const char* perm = nullptr;  // of AttentionPacked
  bool segments = false;       // documents in a row; needs a bias
};

void PrintTo(const AttentionCase& c, std::ostream* out);

// Heads of 8 bfloat16 numbers: the library computes them.
AttentionCase SmallAttention();

// The forward pass, and the backward pass of its results.
std::string GraphText(const AttentionCase& c);

// The same with operands and results that are rounded to bfloat16. Its outputs
// are results of Neg, so that what attention reads and writes can be kept in 16
// bits, and the amaxes. REQUIRES: no bias, not `relative`.
// Both: with a `perm` the op is AttentionPacked, s = t and e = d.
std::string BFloat16Text(const AttentionCase& c);

}  // namespace onnx_fp8
