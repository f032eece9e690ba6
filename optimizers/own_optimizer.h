// SPDX-License-Identifier: Apache-2.0
//
// An optimizer of one's own: a small model of one parameter's update.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"

namespace onnx_fp8 {

struct OptimizerRow;

// Whether OptimizerSpec::kind is the path of such a model: it ends in .onnx.
bool IsOptimizerFile(std::string_view kind);

// Reads the model. Its inputs are param, grad, lr, step and states of any other
// names; its outputs the new parameter, then a new value of each state, in
// order. grad has been clipped; lr is of the parameter's group; step counts
// from 1. param and grad are needed, lr and step are read if they are there.
//
// Errors, which name the file: ReadModel's; a training step; an input that
// lacks; a state with a dot in its name or with a name of other state; another
// number of outputs; If, Loop and Scan.
std::unique_ptr<Graph> ReadOptimizerFile(const std::string& path);

// Whether it reads the learning rate.
bool ReadsRate(const Graph& rule);

// The names of its states.
std::vector<std::string> StatesOf(const Graph& rule);

// The row of all such optimizers. Its update adds the nodes of *update.rule.
// States have the parameter's name, a dot and their own. A state whose input
// has rank 0 is one number, any other is like the parameter. It starts at the
// initializer of its name, which is one number or the whole state, else at 0.
// If the step or an element of the gradient is not finite, the parameter and
// its states keep their values. Errors, which name the file and the parameter:
// an op that does not take such shapes; a result of another type than the value
// that it replaces.
const OptimizerRow& RowOfOptimizerFiles();

}  // namespace onnx_fp8
