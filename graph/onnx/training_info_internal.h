// SPDX-License-Identifier: Apache-2.0
//
// TrainingInfoProto, for .cc files of graph/ only.
#pragma once

#include <onnx/onnx_pb.h>

#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/onnx/initialization.h"
#include "graph/onnx/model_file_internal.h"
#include "onnx_fp8/budgets.h"

namespace onnx_fp8 {

namespace onnx = ONNX_NAMESPACE;

// Makes the model's graph a whole training iteration: ONNX runs the model's
// graph, then the first algorithm, assigns its update_bindings, and repeats
// this with the next algorithm. The new graph has the nodes of all these runs,
// and a later run reads the values that earlier runs assign. Names stay; a name
// that is taken gets the number of its algorithm ("loss.2"), and
// update_bindings follow. Inputs of one name are one input. Errors: an
// algorithm that reads values of another one; a second update_binding of one
// tensor; a budget that is used up.
void MergeAlgorithms(const std::string& path, const Budgets& budgets,
                     onnx::ModelProto* model);

// The file's graphs of first values, in the order in which they run. Errors:
// ReadModel's; a graph with inputs; a binding of something that is no output,
// or the second one of an initializer.
std::vector<Initialization> ReadInitializations(const ModelFile& file,
                                                const Budgets& budgets);

// Reads the state: values that another value of the graph replaces after each
// run, or that initialization sets. Errors: bindings that do not fit.
void ReadState(const onnx::ModelProto& model, Graph* graph);

// update_binding of the graph's state.
void AddBindings(const Graph& graph, onnx::ModelProto* model);

}  // namespace onnx_fp8
