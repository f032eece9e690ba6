// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace onnx_fp8 {

// The scores in the graph of a loss, as onnxruntime.training.artifacts makes
// it: values that depend on inputs and on `parameters`, and that a node of the
// loss reads. A node is one of the loss if it depends on a label, or if
// generate_artifacts has given its result a name. A label is an input that
// never meets a parameter: no node that depends on it reads a value that
// depends on parameters alone.
std::vector<Value*> FindScores(const Graph& graph,
                               const std::set<std::string>& parameters);

// The scores of tokens whose rows the loss reads; else `rows` itself.
Value* ScoresOfTokens(Value* rows);

}  // namespace onnx_fp8
