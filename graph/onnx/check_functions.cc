// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "base/check.h"
#include "graph/onnx/check_functions_internal.h"
#include "graph/onnx/check_nodes_internal.h"
#include "graph/onnx/model_file_internal.h"
#include "graph/onnx/upgrade.h"

namespace onnx_fp8 {
namespace {

// The recursion is as deep as calls and subgraphs; a thread's stack is limited.
constexpr int kMaxDepth = 100;

using Functions = std::map<std::string, const onnx::FunctionProto*>;

// The inliner tells functions apart by this text. It joins three parts, and
// names may contain the separators, so two functions may have the same text.
std::string JoinedId(const std::string& domain, const std::string& name,
                     const std::string& overload) {
  return domain + "::" + name + (overload.empty() ? "" : "::" + overload);
}

std::string IdOf(const onnx::FunctionProto& function) {
  return JoinedId(function.domain(), function.name(), function.overload());
}

// The name in messages.
std::string NameOf(const onnx::FunctionProto& function) {
  return function.domain() + "." + function.name() +
         (function.overload().empty() ? "" : ":" + function.overload());
}

std::string CalleeOf(const onnx::NodeProto& node) {
  return JoinedId(node.domain(), node.op_type(), node.overload());
}

// Calls `visit` with each subgraph of the node.
template <typename Visit>
void ForSubgraphs(const onnx::NodeProto& node, const Visit& visit) {
  for (const auto& attribute : node.attribute()) {
    if (attribute.has_g()) visit(attribute.g());
    for (const auto& graph : attribute.graphs()) visit(graph);
  }
}

// Checks one function by itself: its names.
class BodyCheck {
 public:
  BodyCheck(const onnx::FunctionProto& function, const std::string& path)
      : function_(function),
        who_(Concat("[", path, "] local function ", NameOf(function))) {}

  void Run() {
    scopes_.emplace_back();
    for (const std::string& name : function_.input()) Define(name);
    std::set<std::string> inputs = scopes_.back();
    Nodes(function_.node());
    std::set<std::string> outputs;
    for (const std::string& name : function_.output()) {
      Check(!inputs.contains(name) && scopes_.back().contains(name), who_,
            " declares output \"", name,
            "\", which none of its nodes computes");
      Check(outputs.insert(name).second, who_, " declares output \"", name,
            "\" twice");
    }
  }

 private:
  void Define(const std::string& name) {
    Check(!name.empty(), who_, " expected a value with a name");
    Check(scopes_.back().insert(name).second, who_, " computes \"", name,
          "\" twice");
  }

  void Read(const std::string& name) const {
    bool known = name.empty();
    for (const auto& scope : scopes_) known = known || scope.contains(name);
    Check(known, who_, " reads \"", name,
          "\", which is no input of it and is not computed before");
  }

  template <typename List>
  void Nodes(const List& nodes) {
    for (const onnx::NodeProto& node : nodes) {
      for (const std::string& name : node.input()) Read(name);
      ForSubgraphs(node, [&](const onnx::GraphProto& g) { Subgraph(g); });
      for (const std::string& name : node.output()) {
        if (!name.empty()) Define(name);
      }
    }
  }

  void Subgraph(const onnx::GraphProto& graph) {
    scopes_.emplace_back();
    std::set<std::string>& names = scopes_.back();
    for (const auto& input : graph.input()) names.insert(input.name());
    for (const auto& value : graph.initializer()) names.insert(value.name());
    Nodes(graph.node());
    for (const auto& output : graph.output()) Read(output.name());
    scopes_.pop_back();
  }

  const onnx::FunctionProto& function_;
  std::string who_;
  std::vector<std::set<std::string>> scopes_;
};

// The size of a list of nodes once all that they call is inlined.
struct Extent {
  int64_t nodes = 0;
  int depth = 0;  // of nested subgraphs
};

class CallCheck {
 public:
  CallCheck(const Functions& functions, const std::string& path,
            const Budgets& budgets)
      : functions_(functions), path_(path), spending_(budgets) {}

  template <typename List>
  Extent Sum(const List& nodes) {
    Extent sum;
    for (const onnx::NodeProto& node : nodes) {
      Add(Of(node), &sum);
      ForSubgraphs(node, [&](const onnx::GraphProto& graph) {
        Extent inner = Sum(graph.node());
        ++inner.depth;
        Add(inner, &sum);
      });
    }
    return sum;
  }

 private:
  void Add(const Extent& part, Extent* sum) const {
    if (__builtin_add_overflow(sum->nodes, part.nodes, &sum->nodes)) {
      sum->nodes = INT64_MAX;
    }
    sum->depth = std::max(sum->depth, part.depth);
    // Each list is checked by itself against the whole budget.
    Spending(spending_).Take(&Budgets::nodes, sum->nodes, path_);
    Check(sum->depth <= kMaxDepth, "[", path_,
          "] expected subgraphs that lie in each other at most ", kMaxDepth,
          " deep once local functions are inlined, got more");
  }

  Extent Of(const onnx::NodeProto& node) {
    std::string id = CalleeOf(node);
    auto found = functions_.find(id);
    if (found == functions_.end()) return {1, 0};
    const onnx::FunctionProto& function = *found->second;
    Check(node.input_size() <= function.input_size() &&
              node.output_size() <= function.output_size(),
          "[", path_, "] a call of local function ", NameOf(function), " has ",
          node.input_size(), " inputs and ", node.output_size(),
          " outputs; the function declares ", function.input_size(), " and ",
          function.output_size());
    auto [known, first] = extents_.try_emplace(id);
    if (!first) {
      Check(!open_.contains(id), "[", path_, "] local function ",
            NameOf(function), " calls itself: it can't be inlined");
      return known->second;
    }
    open_.insert(id);
    Check(open_.size() <= kMaxDepth, "[", path_,
          "] expected local functions that call each other at most ", kMaxDepth,
          " deep, got more");
    Extent extent = Sum(function.node());
    open_.erase(id);
    return extents_[id] = extent;
  }

  const Functions& functions_;
  std::string path_;
  Spending spending_;
  std::map<std::string, Extent> extents_;
  std::set<std::string> open_;  // functions whose sum is not finished yet
};

}  // namespace

void CheckFunctions(const onnx::ModelProto& model, const std::string& path,
                    const Budgets& budgets) {
  if (model.functions_size() == 0) return;
  int opset = OnnxOpset(model, path);
  Functions functions;
  for (const auto& function : model.functions()) {
    std::string id = IdOf(function);
    Check(!function.domain().empty() && function.domain() != "ai.onnx", "[",
          path, "] local function ", function.name(),
          " expected a domain of its own, got ONNX's");
    Check(functions.emplace(id, &function).second, "[", path,
          "] local function ", NameOf(function), " is there twice");
    BodyCheck(function, path).Run();
    CheckNodes(function.node(), OnnxOpset(function, path, opset), path);
  }
  CallCheck calls(functions, path, budgets);
  calls.Sum(model.graph().node());
  // The inliner also looks at functions that nobody calls.
  for (const auto& function : model.functions()) calls.Sum(function.node());
}

}  // namespace onnx_fp8
