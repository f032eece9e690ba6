// SPDX-License-Identifier: Apache-2.0
//
// Graphs of one convolution.
#pragma once

#include <iosfwd>
#include <span>
#include <string>

namespace onnx_fp8 {

struct ConvolutionCase {
  const char* name;
  const char* text;
  double tolerance = 5e-6;
};

void PrintTo(const ConvolutionCase& c, std::ostream* out);

std::string GraphText(const ConvolutionCase& c);

// With tiles, with a thread and with a block for each result, where our own
// kernels compute them.
std::span<const ConvolutionCase> ConvolutionCases();

}  // namespace onnx_fp8
