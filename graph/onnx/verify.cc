// SPDX-License-Identifier: Apache-2.0
#include "graph/onnx/verify.h"

#include <onnx/defs/schema.h>

#include <algorithm>
#include <functional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/check.h"
#include "graph/onnx/onnx_convert_internal.h"
#include "graph/print.h"
#include "graph/schemas.h"

namespace onnx_fp8 {
namespace {

class Verifier {
 public:
  Verifier(const Graph& graph, const Verifier* outer, int opset)
      : graph_(graph), outer_(outer), opset_(opset) {
    std::vector<Value*> values = graph.Values();
    values_.reserve(values.size());
    available_.reserve(values.size());
    reads_.reserve(values.size());
    nodes_.reserve(graph.nodes().size());
    values_.insert(values.begin(), values.end());
    for (const Node& node : graph.nodes()) nodes_.insert(&node);
  }

  void Run() {
    CheckInputs();
    CheckSources();
    for (const Node& node : graph_.nodes()) CheckNode(node);
    CheckUses();
    CheckOutputs();
    CheckState();
  }

 private:
  std::string File() const {
    return graph_.file.empty() ? "graph " + graph_.name : graph_.file;
  }

  // True if the node that is being checked can read the value.
  bool Available(const Value* value) const {
    if (available_.contains(value)) return true;
    bool captured =
        !value->producer && !value->is_input && !value->is_initializer();
    return captured && outer_ && outer_->Provides(value->name);
  }

  bool Provides(const std::string& name) const {
    const Value* value = graph_.Find(name);
    if (value) return Available(value);
    return outer_ && outer_->Provides(name);
  }

  void CheckInputs() {
    std::unordered_set<const Value*> listed;
    for (const Value* value : graph_.inputs) {
      Check(values_.contains(value), "[", File(),
            "] expected inputs that are values of the graph, got another");
      Check(value->is_input && !value->producer, "[", File(), "] input \"",
            value->name, "\": expected a value without producer");
      Check(listed.insert(value).second, "[", File(), "] input \"", value->name,
            "\" is listed twice");
    }
    for (const Value* value : values_) {
      Check(!value->is_input || listed.contains(value), "[", File(),
            "] input \"", value->name, "\" is not in the list of inputs");
    }
  }

  void CheckSources() {
    for (const Value* value : graph_.Values()) {
      if (value->is_initializer()) {
        Check(!value->producer, "[", File(), "] initializer \"", value->name,
              "\": expected no producer");
        Check(value->dtype == value->data.dtype() && value->shape &&
                  *value->shape == value->data.shape(),
              "[", File(), "] initializer \"", value->name, "\": expected ",
              Name(value->data.dtype()), ToString(value->data.shape()),
              " as its data, got ", TypeText(*value));
      }
      if (value->is_initializer() || value->is_input) available_.insert(value);
      if (const Node* node = value->producer) {
        Check(nodes_.contains(node), "[", File(), "] value \"", value->name,
              "\": its producer is no node of the graph");
        const auto& outputs = node->outputs();
        if (std::ranges::find(outputs, value) == outputs.end()) {
          Fail("[", node->Where(), "] expected output \"", value->name,
               "\", got none of that name");
        }
      }
    }
  }

  void CheckNode(const Node& node) {
    CheckSchema(node);
    for (const Value* value : node.inputs()) {
      if (!value) continue;
      if (!values_.contains(value)) {
        Fail("[", node.Where(), "] reads a value that is not in its graph");
      }
      if (!Available(value)) {
        Fail("[", node.Where(), "] expected \"", value->name,
             "\" to be produced before it is read");
      }
      reads_[value].push_back(&node);
    }
    for (const auto& [key, attribute] : node.attributes) {
      auto* body = std::get_if<std::shared_ptr<Graph>>(&attribute);
      if (!body) continue;
      Check(*body != nullptr, "[", node.Where(), "] attribute ", key,
            ": expected a graph, got none");
      Verifier(**body, this, opset_).Run();
    }
    for (const Value* value : node.outputs()) {
      if (!value) continue;
      if (!values_.contains(value)) {
        Fail("[", node.Where(), "] has an output that is not in its graph");
      }
      if (value->producer != &node || !available_.insert(value).second) {
        Fail("[", node.Where(), "] expected to be the one producer of \"",
             value->name, "\"");
      }
    }
  }

  void CheckSchema(const Node& node) {
    if (node.domain == kDomain) {
      if (!FindOp(node.op)) {
        Fail("[", node.Where(), "] expected an op of domain ", kDomain,
             ", got ", node.op);
      }
      return;
    }
    bool onnx_domain = node.domain.empty() || node.domain == "ai.onnx";
    if (!onnx_domain) {
      Fail("[", node.Where(), "] expected an op of ONNX or of the domain ",
           kDomain, ", got ", node.domain, ".", node.op);
    }
    if (!onnx::OpSchemaRegistry::Schema(node.op, opset_, "")) {
      Fail("[", node.Where(), "] expected an op of ONNX's opset ", opset_,
           ", got ", node.op);
    }
  }

  void CheckUses() {
    for (const Value* value : graph_.Values()) {
      std::vector<const Node*> uses(value->uses.begin(), value->uses.end());
      std::vector<const Node*>& reads = reads_[value];
      std::ranges::sort(uses, std::less<>());
      std::ranges::sort(reads, std::less<>());
      Check(uses == reads, "[", File(), "] value \"", value->name,
            "\": its use list does not agree with the nodes that read it");
    }
  }

  void CheckOutputs() {
    std::unordered_set<const Value*> listed;
    for (const Value* value : graph_.outputs) {
      Check(values_.contains(value), "[", File(),
            "] expected outputs that are values of the graph, got another");
      Check(Available(value), "[", File(), "] output \"", value->name,
            "\": expected a producer, got none");
      Check(listed.insert(value).second, "[", File(), "] output \"",
            value->name, "\" is listed twice");
    }
  }

  void CheckState() {
    std::unordered_set<const Value*> bound;
    for (const auto& [state, next] : graph_.state) {
      Check(values_.contains(state) && state->is_initializer(), "[", File(),
            "] expected state that is an initializer, got ",
            values_.contains(state) ? state->name : "no value of the graph");
      Check(bound.insert(state).second, "[", File(), "] state \"", state->name,
            "\" is bound twice");
      Check(values_.contains(next) && available_.contains(next), "[", File(),
            "] state \"", state->name,
            "\": expected a next value that the graph produces");
      Check(state->dtype == next->dtype && state->shape == next->shape, "[",
            File(), "] state \"", state->name, "\": expected a next value of ",
            TypeText(*state), ", got \"", next->name, "\" of ",
            TypeText(*next));
    }
  }

  const Graph& graph_;
  const Verifier* outer_;
  int opset_;
  std::unordered_set<const Value*> values_;
  std::unordered_set<const Node*> nodes_;
  std::unordered_set<const Value*> available_;
  std::unordered_map<const Value*, std::vector<const Node*>> reads_;
};

}  // namespace

void Verify(const Graph& graph, std::string_view after) {
  try {
    Verifier(graph, nullptr, graph.opset).Run();
  } catch (const Error& error) {
    if (after.empty()) throw;
    Fail(error.what(), " (after ", after, ")");
  }
}

}  // namespace onnx_fp8
