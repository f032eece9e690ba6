// SPDX-License-Identifier: Apache-2.0
//
// What `onnx-fp8 bench` can time. Each benchmark takes the words after its name
// and has flags and a help of its own. Errors: OptionError (exit code 2),
// Interruption, Error.
#pragma once

#include "cli/flags.h"

namespace onnx_fp8 {

void BenchAttention(const Arguments& arguments);  // attention.cc
void BenchGemm(const Arguments& arguments);       // gemm.cc
void BenchLinear(const Arguments& arguments);     // linear.cc
void BenchNodes(const Arguments& arguments);      // nodes.cc
void BenchNormLinearSigmoid(
    const Arguments& arguments);  // norm_linear_sigmoid.cc

}  // namespace onnx_fp8
