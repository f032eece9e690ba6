// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "graph/graph.h"

namespace onnx_fp8 {

// Adds nodes whose outputs get fresh names, and their dtypes and shapes at
// once: code that builds graphs can ask the values for their shapes.
class Builder {
 public:
  // Nodes are inserted before `before`, or at the end. Names of new values
  // start with `prefix`; new nodes get `metadata` (module paths).
  explicit Builder(Graph& graph, std::string prefix = "",
                   Node* before = nullptr)
      : graph_(graph), prefix_(std::move(prefix)), before_(before) {}

  Graph& graph() { return graph_; }
  void set_metadata(std::map<std::string, std::string> metadata) {
    metadata_ = std::move(metadata);
  }

  void set_part(Part part) { part_ = part; }

  // A node with one output.
  Value* Op(const std::string& op, const std::vector<Value*>& inputs,
            Attributes attributes = {}, const std::string& domain = "");
  // The same in our own domain.
  Value* Ours(const std::string& op, const std::vector<Value*>& inputs,
              Attributes attributes = {}) {
    return Op(op, inputs, std::move(attributes), kDomain);
  }
  // A node with several outputs.
  std::vector<Value*> Ops(const std::string& op,
                          const std::vector<Value*>& inputs, size_t outputs,
                          Attributes attributes = {},
                          const std::string& domain = "");

  // Constants (initializers). Equal small constants are shared.
  Value* Constant(const Tensor& data);
  Value* Ints(const std::vector<int64_t>& values) {
    return Constant(Tensor::Ints(values));
  }
  Value* Int(int64_t value) { return Constant(Tensor::Scalar(value)); }
  // Rank-0 constant of the dtype of `like`.
  Value* Scalar(double value, const Value* like);

  // --- frequent shorthands; shapes broadcast as in ONNX
  Value* Add(Value* a, Value* b) { return Op("Add", {a, b}); }
  Value* Sub(Value* a, Value* b) { return Op("Sub", {a, b}); }
  Value* Mul(Value* a, Value* b) { return Op("Mul", {a, b}); }
  Value* Div(Value* a, Value* b) { return Op("Div", {a, b}); }
  Value* Neg(Value* a) { return Op("Neg", {a}); }
  // `x` itself if it already has that shape.
  Value* Reshape(Value* x, const Shape& shape);
  // `x` itself if perm is the identity.
  Value* Transpose(Value* x, const std::vector<int64_t>& perm);
  // Swaps the last two axes.
  Value* SwapLast(Value* x);
  Value* Cast(Value* x, DType to);
  Value* ReduceSum(Value* x, const std::vector<int64_t>& axes, bool keepdims);
  // Sums x (broadcast shape) down to `shape`: the gradient of broadcasting.
  Value* SumTo(Value* x, const Shape& shape);

 private:
  Graph& graph_;
  std::string prefix_;
  Node* before_;
  std::map<std::string, std::string> metadata_;
  Part part_ = Part::kModel;
};

}  // namespace onnx_fp8
