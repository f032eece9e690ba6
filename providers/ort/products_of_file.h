// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace onnx_fp8 {

// Finds products of a session's graph, MatMul and Gemm, in the model's file.
class ProductsOfFile {
 public:
  // REQUIRES: the file's constants are initializers (MarkParameters); it
  // outlives this.
  explicit ProductsOfFile(const Graph& file);

  // The file's node for the session's: that of its name; or else that which
  // reads the same constant, and of several the one that reads the same input.
  // Null if there is none, or if it is not certain.
  const Node* Find(const Node& node) const;

 private:
  std::map<std::string, std::vector<const Node*>> by_name_, by_constant_;
};

}  // namespace onnx_fp8
