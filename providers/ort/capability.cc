// SPDX-License-Identifier: Apache-2.0
#include "providers/ort/capability.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "graph/graph.h"
#include "graph/onnx/upgrade.h"
#include "providers/ort/node_support.h"
#include "providers/ort/ort_graph.h"

namespace onnx_fp8 {
namespace {

using Values = std::vector<const OrtValueInfo*>;

// Version 1.23 does not say that a graph is the body of control flow, and gives
// the groups of two such bodies one name, which is an error. There a body is
// known by operands from outside, or by a signature that only bodies have: no
// inputs (If), or Loop's inputs.
bool IsBody(const OrtGraph* graph) {
  const OrtNode* parent = nullptr;
  Must(Ort().Graph_GetParentNode(graph, &parent));
  if (parent) return true;
  Values inputs = ListOf<const OrtValueInfo*>(graph, Ort().Graph_GetNumInputs,
                                              Ort().Graph_GetInputs);
  Values outputs = ListOf<const OrtValueInfo*>(graph, Ort().Graph_GetNumOutputs,
                                               Ort().Graph_GetOutputs);
  bool loop = inputs.size() >= 2 && !outputs.empty() &&
              DTypeOf(inputs[0]) == DType::kInt64 &&
              DTypeOf(inputs[1]) == DType::kBool &&
              DTypeOf(outputs[0]) == DType::kBool;
  if (inputs.empty() || loop) return true;
  for (const OrtNode* node : NodesOf(graph)) {
    for (const OrtValueInfo* value : InputsOf(node)) {
      bool outer = false;
      if (value) Must(Ort().ValueInfo_IsFromOuterScope(value, &outer));
      if (outer) return true;
    }
  }
  return false;
}

class Finder {
 public:
  Finder(const OrtGraph* graph, const KernelRegistry& kernels)
      : nodes_(NodesOf(graph)), opset_(OpsetOf(graph)), kernels_(kernels) {}

  std::vector<NodeGroup> Find() {
    if (opset_ < kOldestOpset || opset_ > kNormalOpset) return {};
    std::map<int, NodeGroup> groups = Divide();
    while (RefuseOpenSequences()) groups = Divide();
    std::vector<NodeGroup> list;
    for (auto& [level, group] : groups) list.push_back(std::move(group));
    return list;
  }

 private:
  struct Made {
    bool ours;
    int level;
  };

  // By level.
  std::map<int, NodeGroup> Divide() {
    made_.clear();
    known_.clear();
    sequences_.clear();
    std::map<int, NodeGroup> groups;
    for (const OrtNode* node : nodes_) {
      Values inputs = InputsOf(node);
      bool runs = !refused_.contains(node) && Runs(node, inputs);
      int level = LevelOf(node, inputs, runs);
      bool known = runs && IsKnown(node, inputs);
      for (const OrtValueInfo* value : OutputsOf(node)) {
        std::string name = NameOf(value);
        made_[name] = {runs, level};
        if (known) known_.insert(name);
        if (IsSequence(value)) Use(value, node, runs, level);
      }
      for (const OrtValueInfo* value : inputs) {
        if (IsSequence(value)) Use(value, node, runs, level);
      }
      if (runs) groups[level].push_back(node);
    }
    return groups;
  }

  // A sequence of tensors, and the nodes that make or read it.
  struct Sequence {
    std::vector<const OrtNode*> nodes;
    std::set<int> levels;
    bool ours = true;
  };

  void Use(const OrtValueInfo* value, const OrtNode* node, bool runs,
           int level) {
    Sequence& sequence = sequences_[NameOf(value)];
    sequence.nodes.push_back(node);
    sequence.levels.insert(level);
    bool output = false;
    Must(Ort().ValueInfo_IsGraphOutput(value, &output));
    sequence.ours &= runs && !output;
  }

  // Inside a group sequences become plain tensors; none may enter or leave it.
  // Whether a node is refused for that reason.
  bool RefuseOpenSequences() {
    size_t before = refused_.size();
    for (const auto& [name, sequence] : sequences_) {
      bool closed = sequence.ours && sequence.levels.size() == 1 &&
                    sequence.nodes.size() > 1;
      if (closed) continue;
      refused_.insert(sequence.nodes.begin(), sequence.nodes.end());
    }
    return refused_.size() > before;
  }

  // A path that leaves our nodes and comes back reaches a higher level, so that
  // the nodes of one level are a group.
  int LevelOf(const OrtNode* node, Values inputs, bool runs) const {
    Values implicit = ListOf<const OrtValueInfo*>(
        node, Ort().Node_GetNumImplicitInputs, Ort().Node_GetImplicitInputs);
    inputs.insert(inputs.end(), implicit.begin(), implicit.end());
    int level = runs ? 0 : -1;
    for (const OrtValueInfo* value : inputs) {
      auto it = made_.find(NameOf(value));
      if (it == made_.end()) continue;
      const Made& made = it->second;
      level = std::max(level, made.level + (runs && !made.ours ? 1 : 0));
    }
    return level;
  }

  bool Runs(const OrtNode* node, const Values& inputs) const {
    size_t bodies = 0;
    Must(Ort().Node_GetNumSubgraphs(node, &bodies));
    std::string domain = DomainOf(node);
    if (bodies > 0 || (!domain.empty() && domain != kDomain)) return false;
    Values outputs = OutputsOf(node);
    for (const Values* values :
         std::initializer_list<const Values*>{&inputs, &outputs}) {
      for (const OrtValueInfo* value : *values) {
        bool tensors = NameOf(value).empty() || IsSequence(value) ||
                       DTypeOf(value) != DType::kUndefined;
        if (!tensors) return false;
      }
    }
    try {
      auto alone = ToGraph(opset_, {&node, 1}, {}, outputs);
      return std::ranges::all_of(alone->nodes(), [&](const Node& part) {
        return RunsOn(kernels_, part) && SizesAreKnown(part);
      });
    } catch (const Error&) {
      return false;  // a form of the op that we do not know
    }
  }

  bool SizesAreKnown(const Node& node) const {
    return std::ranges::all_of(SizesOf(kernels_, node), [&](size_t i) {
      const Value* value = node.in(i);
      return !value || value->is_constant() || known_.contains(value->name);
    });
  }

  // Whether the results are known once the shapes of all inputs are.
  bool IsKnown(const OrtNode* node, const Values& inputs) const {
    std::string op = OpOf(node);
    if (op == "Shape" || op == "Size" || op == "SequenceLength") return true;
    if (op.starts_with("Random") || op == "Bernoulli") return false;
    return std::ranges::all_of(inputs, [&](const OrtValueInfo* value) {
      std::string name = NameOf(value);
      return name.empty() || known_.contains(name) || IsConstant(value);
    });
  }

  std::vector<const OrtNode*> nodes_;
  int opset_;
  const KernelRegistry& kernels_;
  std::map<std::string, Made> made_;
  std::set<std::string> known_;
  std::map<std::string, Sequence> sequences_;
  std::set<const OrtNode*> refused_;
};

}  // namespace

std::vector<NodeGroup> GroupsOf(const OrtGraph* graph,
                                const KernelRegistry& kernels) {
  if (IsBody(graph)) return {};
  return Finder(graph, kernels).Find();
}

}  // namespace onnx_fp8
