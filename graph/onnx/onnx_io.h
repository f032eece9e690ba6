// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/onnx/initialization.h"
#include "onnx_fp8/budgets.h"

namespace onnx_fp8 {

// Data files that do not exist, and the tensors that would lie there.
struct MissingData {
  std::set<std::string> files, tensors;
};

struct ReadOptions {
  // Functions are inlined. true: nodes stay as the file has them. false: every
  // node is brought to its normal form, the newest form of its op that the
  // pinned ONNX knows (upgrade.h), and float tensors of bodies become the
  // graph's own (constants.h).
  bool as_is = false;
  // true: the algorithms in the file's training_info, if it has any, belong to
  // the graph: the file is a training step of another program.
  bool algorithm = false;
  Budgets budgets = {};  // `nodes`, with functions inlined
  // Not null: tensors of data files that do not exist are zeros, which take no
  // memory before they are written, and the names go here.
  MissingData* missing = nullptr;
  // Not null: ReadModel adds the file's graphs of first values here. They run
  // in this order.
  std::vector<Initialization>* initializations = nullptr;
};

struct WriteOptions {
  // Initializers of 1 KiB or more go into a file beside the model, whose name
  // is the model's with kDataSuffix appended.
  bool external_data = false;
  // They also do so if the model would have more bytes than this: Protobuf's
  // limit is 2 GiB.
  size_t largest = INT32_MAX;
};

inline constexpr char kDataSuffix[] = ".data";

// Reads a model. Initializers in external files are mapped, not read; if the
// file's training_info binds one, it has a role of state (Graph::state).
// Errors: no such file, not an ONNX model, external data outside the model's
// folder or shorter than declared, functions that exceed the budget; all name
// the file.
std::unique_ptr<Graph> ReadModel(const std::string& path,
                                 const ReadOptions& options = {});

// The same from bytes; external data is refused.
std::unique_ptr<Graph> ReadModelFromBytes(const std::string& bytes);

// One serialized TensorProto (the .pb files of ONNX's test data).
Tensor ReadTensorProto(const std::string& path);

// Writes the graph as a model that any ONNX runtime can run: ops of our domain
// come with their bodies as local functions. State is written as initializers
// that are inputs too, with update_binding. Errors: the file can't be written;
// its external data would replace a file that is no part of the old model.
void WriteModel(const Graph& graph, const std::string& path,
                const WriteOptions& options = {});

}  // namespace onnx_fp8
