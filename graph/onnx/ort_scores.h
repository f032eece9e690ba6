// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace onnx_fp8 {

// Finds the scores in a graph with a loss, which onnxruntime.training.artifacts
// made. Scores depend on inputs and on `parameters`, and a node of the loss
// reads them. A node is one of the loss if it depends on a label, or if
// generate_artifacts has given its result a name. A label is an input that
// never meets a parameter: no node that depends on it reads a value that
// depends on parameters alone.
std::vector<Value*> FindScores(const Graph& graph,
                               const std::set<std::string>& parameters);

// The scores of tokens whose rows the loss reads; else `rows` itself.
Value* ScoresOfTokens(Value* rows);

}  // namespace onnx_fp8
