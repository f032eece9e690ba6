// SPDX-License-Identifier: Apache-2.0
//
// How much of a step's signal FP8 keeps: 20·log10(|x| / |x - x8|) in dB, where
// x is the same step in fp32.
#pragma once

#include <string>
#include <vector>

#include "onnx_fp8/session.h"
#include "tests/training/files.h"

namespace onnx_fp8 {

// In dB. REQUIRES: equal shapes.
double Sqnr(const Tensor& exact, const Tensor& rounded);

// EXPECTs low <= value <= high. Too much is as wrong as too little: then
// something was not quantized.
void ExpectBetween(double value, double low, double high,
                   const std::string& what);

// The two models: inputs x (M,K) and g of y's shape, outputs y and the loss
// Σ y·g, so that the gradient of y is g. Return the file's path.
//
// y = x wᵀ, w (N,K).
std::string WriteLinear(const TempDir& dir, int64_t rows, const Tensor& w);
// LLaMA's feed-forward, y = (silu(x w1ᵀ) · x w3ᵀ) w2ᵀ. Weights are uniform in
// ±1/sqrt(K), as torch.nn.Linear makes them and as in torchao's test.
std::string WriteFeedForward(const TempDir& dir, int64_t rows, int64_t width,
                             int64_t hidden);

// "rowwise,round:none" as a test's name.
std::string RecipeTestName(std::string recipe);

struct SqnrRun {
  std::string recipe;
  // Steps before this one, from which delayed and static scales come.
  std::vector<TensorMap> earlier = {};
  std::vector<std::string> expand = {};  // ops that run by their bodies
};

// Loss, outputs and all gradients of one of the models above. A static recipe
// takes the scales that delayed scaling has after `earlier`.
GradientResult RunStep(const std::string& model, const SqnrRun& run,
                       const TensorMap& feeds);

// dB of y, of the gradient of x, and of the weights' gradients by name.
struct StepSqnr {
  double y = 0, dx = 0;
  std::map<std::string, double> dw;
};

StepSqnr CompareSteps(const GradientResult& exact,
                      const GradientResult& rounded);

}  // namespace onnx_fp8
