// SPDX-License-Identifier: Apache-2.0
//
// The graph: a thin IR over ONNX. A value is identified by its ONNX name, so a
// round trip keeps every name. Node order is execution order.
#pragma once

#include <iosfwd>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <variant>
#include <vector>

#include "onnx_fp8/dtype.h"
#include "onnx_fp8/shape.h"
#include "onnx_fp8/tensor.h"

namespace onnx_fp8 {

class Graph;
class Node;

// The domain of our own operators.
inline constexpr char kDomain[] = "onnx_fp8";

// The values that an attribute can hold. monostate stands for the kinds that no
// supported operator has (sparse tensors, types).
using Attribute =
    std::variant<std::monostate, int64_t, float, std::string,
                 std::vector<int64_t>, std::vector<float>,
                 std::vector<std::string>, Tensor, std::shared_ptr<Graph>>;
using Attributes = std::map<std::string, Attribute, std::less<>>;

// The role of an initializer in training; see passes/trained_parameters.h.
enum class Role {
  kNone,       // no initializer, or a plain constant
  kParameter,  // trained
  kFrozen,     // a parameter that is not trained
  // State: a step gives it new values.
  kMoment,        // of an optimizer
  kAverage,       // of a parameter, over updates
  kCorrection,    // of a parameter that is kept as a bfloat16
  kScale,         // of quantization, and its amaxes
  kLossScale,     // of dynamic loss scaling
  kGradientNorm,  // of the step before
  kStatistic,     // running statistics
  kSum,           // sums over micro-batches
  kCounter,
  kBound,       // bound by a file of another program
  kWeightCopy,  // an FP8 copy of weights, for the next step; no file has it
};

constexpr bool IsState(Role role) { return role >= Role::kMoment; }

// The name of a role in the text of a graph.
const char* Name(Role role);

// The part of a step that a node belongs to, for reports. Files do not keep it.
enum class Part {
  kModel,
  kOptimizer,
  kRecomputed,  // in the backward, what the forward has computed before
};

struct Value {
  std::string name;
  DType dtype = DType::kUndefined;
  // No value: the rank is unknown. A size of -1: that axis is unknown.
  std::optional<Shape> shape;
  // Axis names of a graph input ("" for an axis of fixed size), else empty.
  std::vector<std::string> axis_names;
  Node* producer = nullptr;  // null: graph input, initializer or captured
  std::vector<Node*> uses;   // one entry per input slot that reads it
  Tensor data;               // defined for initializers
  Role role = Role::kNone;
  bool is_input = false;     // listed in Graph::inputs
  bool is_sequence = false;  // a sequence of tensors; gone after import
  // State of a step on a device that lies in the host's memory: the device
  // reads and writes it over the bus.
  bool on_host = false;
  // A 16-bit float in which a float value is exact and is kept in memory;
  // kUndefined: it is kept as `dtype` (providers/passes/store_narrow.h).
  DType narrow = DType::kUndefined;

  bool is_initializer() const { return data.defined(); }
  // A value that is the same in every step.
  bool is_constant() const {
    return data.defined() && role == Role::kNone && !is_input;
  }
  bool concrete() const { return shape && IsConcrete(*shape); }
  int64_t rank() const { return static_cast<int64_t>(shape->size()); }
  // Size of one axis, negative from the end. REQUIRES: rank known, in range.
  int64_t dim(int64_t axis) const {
    return (*shape)[static_cast<size_t>(axis < 0 ? axis + rank() : axis)];
  }
};

// The dtype of the value's elements in memory.
inline DType StoredAs(const Value& value) {
  return value.narrow == DType::kUndefined ? value.dtype : value.narrow;
}

// Bytes of the value's elements in memory. REQUIRES: concrete.
size_t BytesOf(const Value& value);

// A node as messages name it: "MatMul /blocks.0/attn/MatMul", or with its first
// output's name if it has none. The text is made where it is printed: a check
// that passes costs nothing.
class NodePlace {
 public:
  explicit NodePlace(const Node& node) : node_(node) {}

  operator std::string() const;
  friend std::ostream& operator<<(std::ostream& out, const NodePlace& place);

 private:
  const Node& node_;
};

class Node {
 public:
  std::string op;
  std::string domain;  // "" is ONNX's
  std::string name;    // may be empty
  Attributes attributes;
  std::map<std::string, std::string> metadata;  // metadata_props
  // Position in the file the graph was read from; -1 for nodes that were made
  // or changed since.
  int source = -1;
  Part part = Part::kModel;

  // Inputs may hold nullptr (an omitted optional input), outputs too. Change
  // them through Graph only, which keeps use lists right.
  const std::vector<Value*>& inputs() const { return inputs_; }
  const std::vector<Value*>& outputs() const { return outputs_; }
  // Null if the node has fewer inputs or omits this one.
  Value* in(size_t i) const {
    return i < inputs_.size() ? inputs_[i] : nullptr;
  }
  Value* out(size_t i) const {
    return i < outputs_.size() ? outputs_[i] : nullptr;
  }

  bool Is(std::string_view op_type) const {
    return op == op_type && domain.empty();
  }
  bool IsOurs(std::string_view op_type) const {
    return op == op_type && domain == kDomain;
  }

  // Typed attribute getters. Errors: the attribute is of another kind.
  bool Has(std::string_view key) const;
  int64_t Int(std::string_view key, int64_t otherwise) const;
  float Float(std::string_view key, float otherwise) const;
  std::string String(std::string_view key, std::string_view otherwise) const;
  std::vector<int64_t> Ints(std::string_view key,
                            std::vector<int64_t> otherwise = {}) const;
  std::vector<float> Floats(std::string_view key) const;
  const Tensor* TensorAttribute(std::string_view key) const;  // null: absent
  std::shared_ptr<Graph> Subgraph(std::string_view key) const;
  // The bodies of an If, a Loop or a Scan, by attribute name; else empty.
  std::vector<Graph*> Subgraphs() const;

  // For messages.
  NodePlace Where() const { return NodePlace(*this); }

 private:
  friend class Graph;
  std::vector<Value*> inputs_;
  std::vector<Value*> outputs_;
  std::list<Node>::iterator self_;
};

// `next` is the value that replaces `state` after the step; assignments of all
// bindings are simultaneous (ONNX TrainingInfoProto.update_binding).
struct StateBinding {
  Value* state;
  Value* next;
};

class Graph {
 public:
  Graph() = default;
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  std::string name = "graph";
  std::string file;  // where it was read from, for messages
  int opset = 24;    // of the ONNX domain; decides the meaning of nodes
  std::map<std::string, std::string> metadata;  // of the model

  std::vector<Value*> inputs;  // without initializers, unless state
  // As the file lists them: with initializers that are inputs' defaults.
  std::vector<std::string> listed_inputs;
  std::vector<Value*> outputs;
  std::vector<StateBinding> state;

  // --- values
  // Errors: the name is taken.
  Value* AddInput(const std::string& name, DType dtype,
                  std::optional<Shape> shape);
  Value* AddInitializer(const std::string& name, Tensor data);
  // A value without producer, input or data: read from the enclosing graph.
  Value* AddCaptured(const std::string& name);
  // null if there is none.
  Value* Find(std::string_view name) const;
  // `hint` itself, or `hint` and a number if it is taken.
  std::string FreshName(const std::string& hint) const;
  // Errors: the new name is taken.
  void Rename(Value* value, const std::string& name);
  // REQUIRES: no producer, no uses, not an output.
  void RemoveValue(Value* value);
  // All values in order of creation.
  std::vector<Value*> Values() const;
  // Initializers in order of creation.
  std::vector<Value*> Initializers() const;

  // --- nodes
  // Makes the outputs too (an empty name omits an optional output; names must
  // be new). Inserts before `before`, or at the end.
  Node* AddNode(const std::string& op, const std::vector<Value*>& inputs,
                const std::vector<std::string>& output_names,
                Attributes attributes = {}, const std::string& domain = "",
                Node* before = nullptr);
  // Adds an output to a node that has fewer outputs or omits this one.
  Value* AddOutput(Node* node, size_t index, const std::string& name);
  void SetInput(Node* node, size_t index, Value* value);
  void RemoveInput(Node* node, size_t index);
  // Every reader of `from`, graph outputs and state bindings included, reads
  // `to` instead.
  void ReplaceUses(Value* from, Value* to);
  // REQUIRES: its outputs have no uses and are no graph outputs; removes them.
  void RemoveNode(Node* node);
  // Makes `to` the producer of `value`, which keeps its name. The output of the
  // present producer gets a fresh name.
  void MoveOutput(Value* value, Node* to, size_t index);
  // The same for an output that `to` has not yet.
  void MoveToNewOutput(Value* value, Node* to, size_t index);

  // Null: the node is the last one.
  Node* NodeBehind(const Node& node);
  std::list<Node>& nodes() { return nodes_; }
  const std::list<Node>& nodes() const { return nodes_; }

  // Stable topological order. Errors: a cycle, naming a node in it.
  void Sort();

  // Values of this graph that subgraphs of the node, at any depth, read by
  // name.
  std::vector<Value*> CapturedBy(const Node& node) const;
  // The same for all nodes.
  std::vector<Value*> CapturedBySubgraphs() const;

 private:
  Value* NewValue(const std::string& name);
  void DropUse(Value* value, Node* node);

  std::list<Node> nodes_;
  std::list<Value> values_;
  std::unordered_map<std::string, std::list<Value>::iterator> by_name_;
  mutable std::unordered_map<std::string, int> next_suffix_;
};

// The first result that the node does not omit; null: it omits all.
Value* FirstResult(const Node& node);

// Whether the graph returns the value. A graph returns its outputs and the next
// values of its state.
bool IsReturned(const Graph& graph, const Value* value);

// All values that the graph returns, for a pass that asks about many.
std::unordered_set<const Value*> ReturnedValues(const Graph& graph);

// The values that replace state after a run.
std::unordered_set<const Value*> NewState(const Graph& graph);

}  // namespace onnx_fp8
