// SPDX-License-Identifier: Apache-2.0
//
// Names in a graph and in the bodies of its If, Loop and Scan nodes.
#pragma once

#include <onnx/onnx_pb.h>

#include <set>
#include <string>
#include <unordered_map>

namespace onnx_fp8 {

namespace onnx = ONNX_NAMESPACE;

// Old name → new name.
using Renames = std::unordered_map<std::string, std::string>;

void Rename(const Renames& renames, std::string* name);

// Renames what nodes read, outputs and value_info, also in the bodies that see
// the graph's names.
void RenameReaders(onnx::GraphProto* graph, const Renames& renames);

// The names of the graph's own values; bodies have others. A node that omits an
// output adds the name "".
std::set<std::string> NamesIn(const onnx::GraphProto& graph);

// Renames each tensor (an initializer or a Constant node) in a body of If, Loop
// or Scan so that nothing else in the model has its name: two branches may use
// one name for two weights. A name that is already unique stays. The new names
// depend on the model alone.
void NameBodyTensors(onnx::GraphProto* graph);

}  // namespace onnx_fp8
