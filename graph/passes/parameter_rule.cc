// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/parameter_rule.h"

#include <algorithm>
#include <optional>
#include <unordered_set>

#include "graph/batch_statistics.h"
#include "graph/op_facts.h"
#include "graph/parameter_names.h"
#include "graph/passes/fixed_tables.h"
#include "graph/views.h"

namespace onnx_fp8 {
namespace {

using Names = std::set<std::string>;

// How the rule sees a value.
struct Kind {
  enum Tag {
    kAux,        // derived from shapes and constants
    kOne,        // a one-element constant
    kValues,     // computed from the content of integer inputs
    kLive,       // depends on float data
    kTravelling  // float constants on their way to their first use
  } tag = kAux;
  Names names = {};
};

using Kinds = std::unordered_map<std::string, Kind>;

ConstantUse UseOfConstants(const Node& node) { return FactsOf(node).constants; }

// Operand slots that hold no weights although the op takes weights.
bool SkipsSlot(const Node& node, size_t slot) {
  const OpFacts& facts = FactsOf(node);
  if (const size_t mean = facts.statistics) {
    return slot == mean || slot == mean + 1;
  }
  return facts.kind == OpKind::kChoice && slot == 0;
}

// Operands that name axes take no part in the computation.
bool IsAxes(const Node& node, size_t slot) {
  return slot == 1 && FactsOf(node).form == OpForm::kReduce;
}

bool OneElement(const Tensor& t) { return t.size() == 1; }

// An initializer of rank 0 that has kept the name of a parameter.
bool IsNamedNumber(const HeldTensor& tensor) {
  return tensor.data.rank() == 0 && !tensor.value->producer &&
         !IsMadeUpName(tensor.value->name);
}

// A normalization without scale and bias is exported with ones and zeros.
bool IsPlaceholder(const Node& node, const Value& value, const Tensor& data) {
  const OpFacts& facts = FactsOf(node);
  if (facts.kind != OpKind::kNorm || facts.constants != ConstantUse::kScale ||
      !value.producer || !IsMadeUpName(value.name)) {
    return false;
  }
  double number = DoubleAt(data, 0);
  if (number != 0 && number != 1) return false;
  for (int64_t i = 1; i < data.size(); ++i) {
    if (DoubleAt(data, i) != number) return false;
  }
  return true;
}

// Through views and simple arithmetic, the result of the node reaches sines and
// cosines and nothing else: it is an angle.
bool LeadsToSines(const Node& node) {
  std::vector<const Node*> open = {&node};
  std::unordered_set<const Node*> seen;
  bool any = false;
  while (!open.empty()) {
    const Node* next = open.back();
    open.pop_back();
    if (!seen.insert(next).second) continue;
    for (const Value* value : next->outputs()) {
      if (!value) continue;
      for (const Node* reader : value->uses) {
        if (reader->Is("Sin") || reader->Is("Cos")) {
          any = true;
        } else if (UseOfConstants(*reader) == ConstantUse::kMoved ||
                   reader->Is("Mul") || reader->Is("Add")) {
          open.push_back(reader);
        } else {
          return false;
        }
      }
    }
  }
  return any;
}

class Walk {
 public:
  Walk(const Graph& graph, const std::vector<HeldTensor>& tensors,
       bool takes_numbers)
      : takes_numbers_(takes_numbers) {
    Kinds kinds;
    for (const HeldTensor& tensor : tensors) {
      held_.emplace(tensor.value->name, &tensor);
      kinds[tensor.value->name] = KindOf(tensor);
    }
    for (const Value* value : graph.inputs) {
      if (value->is_initializer()) continue;
      kinds[value->name].tag =
          IsFloat(value->dtype) ? Kind::kLive : Kind::kValues;
    }
    Visit(graph, kinds);
  }

  ParameterRule Take() { return std::move(rule_); }

 private:
  static Kind KindOf(const HeldTensor& tensor) {
    if (IsFloat(tensor.data.dtype())) {
      return {Kind::kTravelling, {tensor.value->name}};
    }
    return {OneElement(tensor.data) ? Kind::kOne : Kind::kAux};
  }

  void Found(const Names& names, const Node& node, ParameterUse use) {
    for (const std::string& name : names) {
      auto found = rule_.found.try_emplace(name, Meeting{node.Where(), use});
      Meeting& known = found.first->second;
      known.use = std::max(known.use, use);
      known.lookup |= use == ParameterUse::kLookup;
    }
  }

  void Lost(const Names& names, const Node& node) {
    for (const std::string& name : names) {
      rule_.lost.try_emplace(name, node.Where());
    }
  }

  // For a node in a subgraph.
  static Kind OfConstant(const Node& node) {
    Tensor data = ConstantIn(node);
    return {data.defined() && OneElement(data) ? Kind::kOne : Kind::kAux};
  }

  Kind OfView(const Node& node, const std::vector<Kind>& in) {
    bool gather = node.op.starts_with("Gather") && in.size() > 1;
    if (gather && in[1].tag != Kind::kOne &&
        !held_.contains(node.in(1)->name) && in[0].tag == Kind::kTravelling) {
      Found(in[0].names, node, ParameterUse::kLookup);
      return {Kind::kLive};
    }
    const size_t data = MovedOperands(node);
    Kind out = in.empty() ? Kind{} : in[0];
    bool live = false;
    bool values = gather && in[1].tag == Kind::kValues;
    Names travelling;
    for (size_t i = 0; i < data; ++i) {
      live |= in[i].tag == Kind::kLive;
      values |= in[i].tag == Kind::kValues;
      travelling.insert(in[i].names.begin(), in[i].names.end());
    }
    for (size_t i = data; i < in.size(); ++i) Lost(in[i].names, node);
    if (live) {
      Found(travelling, node, ParameterUse::kArithmetic);
      return {Kind::kLive};
    }
    if (!travelling.empty()) return {Kind::kTravelling, travelling};
    return values ? Kind{Kind::kValues} : out;
  }

  // Constants meet data, or values of integer inputs, at an operand of the
  // node. Returns whether one of them is a weight there.
  bool Meet(const Node& node, size_t slot, const Names& names, bool data) {
    bool any = false;
    const ConstantUse use = UseOfConstants(node);
    bool takes = !SkipsSlot(node, slot) && use != ConstantUse::kBound;
    bool layer = use == ConstantUse::kMatrix || use == ConstantUse::kScale;
    for (const std::string& name : names) {
      const HeldTensor& tensor = *held_.at(name);
      bool factor = takes_numbers_ && IsNamedNumber(tensor) &&
                    (node.op == "Mul" || node.op == "Div" || node.op == "Pow");
      bool number =
          use == ConstantUse::kNotOne && OneElement(tensor.data) && !factor;
      // Positions times frequencies: rotary tables begin with that.
      bool frequencies =
          use == ConstantUse::kMatrix && LeadsToSines(node) &&
          (data ? AreFrequencies(tensor.data) : AreFalling(tensor.data));
      bool weight = takes && !number && !frequencies &&
                    !IsPlaceholder(node, *tensor.value, tensor.data);
      if (factor) rule_.factors.insert(name);
      if (weight) {
        Found({name}, node,
              layer ? ParameterUse::kLayer : ParameterUse::kArithmetic);
      } else {
        Lost({name}, node);
      }
      any |= weight;
    }
    return any;
  }

  // The kind of the results of an op that computes. Constants on their way meet
  // their use here: beside live data Meet tells whether they are weights, among
  // constants they travel on, beside anything else they are lost.
  Kind OfOperation(const Node& node, const std::vector<Kind>& in) {
    auto has = [&](Kind::Tag tag) {
      return std::ranges::any_of(in,
                                 [&](const Kind& k) { return k.tag == tag; });
    };
    bool live = has(Kind::kLive), values = has(Kind::kValues);
    Names travelling;
    bool alike = true;
    bool ones = !in.empty();
    for (size_t i = 0; i < in.size(); ++i) {
      travelling.insert(in[i].names.begin(), in[i].names.end());
      alike &= in[i].tag == Kind::kTravelling || in[i].tag == Kind::kOne ||
               IsAxes(node, i);
      ones &= in[i].tag == Kind::kOne;
    }
    if (live || (values && UseOfConstants(node) == ConstantUse::kMatrix)) {
      bool weight = false;
      for (size_t i = 0; i < in.size(); ++i) {
        weight |= Meet(node, i, in[i].names, live);
      }
      return {live || weight ? Kind::kLive : Kind::kValues};
    }
    if (travelling.empty()) {
      return {values ? Kind::kValues : ones ? Kind::kOne : Kind::kAux};
    }
    if (alike) return {Kind::kTravelling, travelling};
    Lost(travelling, node);
    return {values ? Kind::kValues : Kind::kAux};
  }

  // The kind of a result that either branch of an If may give.
  Kind Join(const Node& node, const Kind& a, const Kind& b) {
    Names travelling = a.names;
    travelling.insert(b.names.begin(), b.names.end());
    if (a.tag == Kind::kLive || b.tag == Kind::kLive) {
      Found(travelling, node, ParameterUse::kArithmetic);
      return {Kind::kLive};
    }
    if (!travelling.empty()) return {Kind::kTravelling, travelling};
    bool values = a.tag == Kind::kValues || b.tag == Kind::kValues;
    return {values ? Kind::kValues : Kind::kAux};
  }

  // Bodies see the values around them; their own inputs count as live. Returns
  // the kinds of the node's outputs. For an If these are the kinds of its
  // branches' results, if they depend on something, or a constant that the
  // condition chooses.
  std::vector<Kind> OfSubgraphs(const Node& node, const std::vector<Kind>& in,
                                Kinds& kinds) {
    bool branches = node.op == "If", first = true;
    std::vector<Kind> outputs(node.outputs().size());
    for (const Graph* inner : node.Subgraphs()) {
      // The body's own values hide outer values of the same name for a while.
      std::vector<std::pair<std::string, std::optional<Kind>>> hidden;
      for (const Value* value : inner->Values()) {
        bool own =
            value->producer || value->is_input || value->is_initializer();
        if (!own) continue;
        auto it = kinds.find(value->name);
        hidden.push_back({value->name, {}});
        if (it != kinds.end()) hidden.back().second = it->second;
        kinds[value->name] = {value->is_input ? Kind::kLive : Kind::kAux};
      }
      Visit(*inner, kinds, /*body=*/true);
      const std::vector<Value*>& given = inner->outputs;
      for (size_t i = 0; i < std::min(outputs.size(), given.size()); ++i) {
        const Kind& kind = kinds[given[i]->name];
        outputs[i] = first ? kind : Join(node, outputs[i], kind);
      }
      first = false;
      for (auto& [name, kind] : hidden) {
        if (kind) {
          kinds[name] = *kind;
        } else {
          kinds.erase(name);
        }
      }
    }
    for (Kind& kind : outputs) {
      if (!branches) {
        kind = {Kind::kLive};
      } else if (kind.tag == Kind::kAux || kind.tag == Kind::kOne) {
        kind = OfOperation(node, in);
      } else if (kind.tag == Kind::kTravelling && in[0].tag == Kind::kLive) {
        Found(kind.names, node, ParameterUse::kArithmetic);
        kind = {Kind::kLive};
      }
    }
    return outputs;
  }

  Kind OfNode(const Node& node, const std::vector<Kind>& in) {
    switch (UseOfConstants(node)) {
      case ConstantUse::kUnread:
        return {};
      case ConstantUse::kMoved:
      case ConstantUse::kResampled:
        return OfView(node, in);
      default:
        return OfOperation(node, in);
    }
  }

  void AddRunning(const Node& node) {
    if (!NormalizesByBatch(node)) return;
    const size_t mean = FactsOf(node).statistics;
    for (size_t i : {mean, mean + 1}) {
      if (node.in(i)) rule_.running.insert(node.in(i)->name);
    }
  }

  static bool HasSubgraph(const Node& node) {
    return node.op == "If" || node.op == "Loop" || node.op == "Scan";
  }

  void Visit(const Graph& graph, Kinds& kinds, bool body = false) {
    for (const Node& node : graph.nodes()) {
      std::vector<Kind> in;
      for (const Value* value : node.inputs()) {
        in.push_back(value ? kinds[value->name] : Kind{Kind::kOne});
      }
      Kind out;
      std::vector<Kind> outputs;
      if (HasSubgraph(node)) {
        outputs = OfSubgraphs(node, in, kinds);
      } else if (node.op == "Constant") {
        if (!body) continue;  // it is among HeldTensors
        out = OfConstant(node);
      } else {
        out = OfNode(node, in);
      }
      AddRunning(node);
      for (size_t i = 0; i < node.outputs().size(); ++i) {
        if (!node.out(i)) continue;
        kinds[node.out(i)->name] = outputs.empty() ? out : outputs[i];
      }
    }
  }

  ParameterRule rule_;
  bool takes_numbers_;
  std::unordered_map<std::string, const HeldTensor*> held_;
};

}  // namespace

ParameterRule FindUses(const Graph& graph,
                       const std::vector<HeldTensor>& tensors,
                       bool takes_numbers) {
  return Walk(graph, tensors, takes_numbers).Take();
}

}  // namespace onnx_fp8
