// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace onnx_fp8 {

struct ReadOptions {
  // Nodes as the file has them. Otherwise functions are inlined and every node
  // is brought to its normal form, the newest form of its op that the pinned
  // ONNX knows (upgrade.h).
  bool as_is = false;
};

// Reads a model. Initializers in external files are mapped, not read. Errors:
// no such file, not an ONNX model, external data outside the model's folder or
// shorter than promised; all name the file.
std::unique_ptr<Graph> ReadModel(const std::string& path,
                                 const ReadOptions& options = {});

// The same from bytes; external data is refused.
std::unique_ptr<Graph> ReadModelFromBytes(const std::string& bytes);

// One serialized TensorProto (the .pb files of ONNX's test data).
Tensor ReadTensorProto(const std::string& path);

// Writes the graph as a model that any ONNX runtime can run: ops of our domain
// come with their bodies as local functions. State is written as initializers
// that are inputs too, with update_binding. Errors: the file can't be written.
void WriteModel(const Graph& graph, const std::string& path);

}  // namespace onnx_fp8
