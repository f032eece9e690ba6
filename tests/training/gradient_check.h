// SPDX-License-Identifier: Apache-2.0
//
// Compares a gradient rule with central differences in float64. One node, the
// nodes of its rule and all that they call run on the CPU kernels, or by bodies
// if there is no kernel.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "training/step/autodiff.h"

namespace onnx_fp8 {

struct Operand {
  Tensor data;               // undefined: omitted
  bool wanted = false;       // a graph input whose gradient is checked
  double low = 0, high = 0;  // filled at random between the two if they differ
};

// Doubles, uniform in [low, high]; the case's name and the operand's slot are
// the seed.
Operand X(const Shape& shape, double low = -2, double high = 2);
// Given doubles whose gradient is checked.
Operand XOf(const Shape& shape, const std::vector<double>& values);
Operand Constant(Tensor data);
Operand Ints(const std::vector<int64_t>& values);
Operand Ints(const Shape& shape, const std::vector<int64_t>& values);
Operand Int(int64_t value);
Operand Doubles(const Shape& shape, const std::vector<double>& values);
Operand Bools(const Shape& shape, const std::vector<bool>& values);
Operand None();

// `more` with the attribute "axis".
Attributes Axis(int64_t axis, Attributes more = {});

struct GradientCase {
  std::string name;
  std::string op;  // "onnx_fp8.Attention": one of our own
  std::vector<Operand> inputs;
  Attributes attributes = {};
  size_t outputs = 1;
};

// What GoogleTest prints of a case.
void PrintTo(const GradientCase& gradient_case, std::ostream* out);

// The loss is Σ over all float outputs of Σ y · (fixed random weights).
// Compares the gradients of all wanted operands, together and each alone, with
// differences. Also checks that the backward graph does not change the loss.
void CheckGradient(const GradientCase& gradient_case);

// GetParam().name, for INSTANTIATE_TEST_SUITE_P.
std::string CaseName(const testing::TestParamInfo<GradientCase>& info);

// BuildBackward with the program's evaluator.
BackwardResult Differentiate(Graph& graph, Value* loss,
                             const std::vector<Value*>& wanted);

// Values of a graph whose inputs are fed by name. Nodes run in order; those
// without a CPU kernel run by their bodies (which changes the graph).
std::map<std::string, Tensor> RunGraph(
    Graph& graph, const std::map<std::string, Tensor>& feeds);

}  // namespace onnx_fp8
