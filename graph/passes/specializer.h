// SPDX-License-Identifier: Apache-2.0
//
// The walk behind Specialize; internal to specialize.cc, control_flow.cc and
// sequences.cc.
#pragma once

#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/check.h"
#include "graph/evaluator.h"
#include "graph/graph.h"
#include "graph/passes/bounded_rows.h"
#include "graph/passes/specialize.h"

namespace onnx_fp8 {

// The result of walking an old value: a value of the new graph, or a sequence
// of them.
struct Entry {
  Value* value = nullptr;
  std::vector<Value*> sequence;
  bool is_sequence = false;
};

// A graph being walked; subgraphs see the values of the graphs around them.
struct Scope {
  const Graph* graph;
  Scope* outer;
  std::unordered_map<const Value*, Entry> entries;
};

// Ends a walk that needs the values of inputs.
class NeedsValues : public Error {
 public:
  NeedsValues(const std::string& text, std::set<std::string> names)
      : Error(text), inputs(std::move(names)) {}
  const std::set<std::string> inputs;
};

class Specializer {
 public:
  // `values`: values of the inputs that become constants.
  Specializer(Graph& out, const Evaluator& evaluator, const InputValues& values,
              Spending& spending)
      : out_(out),
        evaluator_(evaluator),
        values_(values),
        spending_(spending),
        bounded_(out, evaluator) {}

  Graph& Run(const Graph& graph, const std::map<std::string, Shape>& shapes);
  int64_t folded() const { return folded_; }

 private:
  void Walk(Scope& scope);
  void Visit(Scope& scope, const Node& node);
  Entry Lookup(Scope& scope, const Value* value);
  // The new value of the node's input `i`. Errors: none given, a sequence.
  Value* TensorAt(Scope& scope, const Node& node, size_t i);
  void Bind(Scope& scope, const Value* old, Value* value);
  Value* Constant(Tensor data, const std::string& hint);
  // Adds a node that the old graph does not have, and infers its shapes.
  Value* Emit(const Node& like, const std::string& op,
              const std::vector<Value*>& in, Attributes attributes = {});

  // False if no number of rows that data decide concerns the node.
  bool VisitBounded(Scope& scope, const Node& node,
                    const std::vector<Value*>& in);
  bool Alias(Scope& scope, const Node& node, const std::vector<Value*>& in);
  Value* FoldShape(const Node& node, const Value& x);
  Node* Copy(const Node& node, const std::vector<Value*>& in);
  void MakeDrawItsOwn(const Node& node, Node* copy);
  bool Fold(Scope& scope, const Node& node, Node* copy);
  void RequireShapes(const Node& node) const;
  // The sources on which an unknown value depends.
  struct Sources {
    std::set<std::string> keys;  // inputs whose values may be known
    bool data = false;           // anything else
  };
  Sources SourcesOf(const Node& node, const Value* value) const;
  // The first element of a constant; `what` names the operand of the node.
  // Errors: NeedsValues if inputs decide it, Error if data decide it.
  int64_t KnownInt(const Node& node, const Value* value,
                   const char* what) const;
  // Errors: NeedsValues if inputs that may be keys decide `value`.
  void AskFor(const Node& node, const Value* value, const char* what) const;
  void AddOutput(Scope& scope, const Value* output);

  // False if the node is no If, Loop or Scan.
  bool VisitControlFlow(Scope& scope, const Node& node);
  void VisitIf(Scope& scope, const Node& node);
  Value* Select(const Node& node, Value* condition, const Entry& yes,
                const Entry& no);
  void VisitLoop(Scope& scope, const Node& node);
  void RequireVisits(const Node& node, const Graph& body, int64_t trips);
  void VisitScan(Scope& scope, const Node& node);
  std::vector<Entry> Carried(Scope& scope, const Node& node, size_t first,
                             size_t count);
  // Walks a body whose inputs are bound to `inputs`; returns its outputs.
  std::vector<Entry> Inline(Scope& scope, const Graph& body,
                            const std::vector<Entry>& inputs);
  Value* Stack(const Node& node, const std::vector<Value*>& parts,
               int64_t axis);

  // False if the node neither makes nor reads a sequence.
  bool VisitSequence(Scope& scope, const Node& node);
  std::vector<Value*> SplitToSequence(Scope& scope, const Node& node);

  Graph& out_;
  const Evaluator& evaluator_;
  const InputValues& values_;
  Spending& spending_;
  BoundedRows bounded_;
  int64_t folded_ = 0;
  // How often each random node of the old graph was copied, and how many nodes
  // of the new graph have, or would have, a name ("op name").
  std::unordered_map<const Node*, int64_t> random_visits_;
  std::unordered_map<std::string, int64_t> random_names_;
};

}  // namespace onnx_fp8
