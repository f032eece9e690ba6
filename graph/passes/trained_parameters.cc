// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/trained_parameters.h"

#include <algorithm>
#include <optional>
#include <set>
#include <unordered_map>

#include "graph/parameter_names.h"
#include "graph/passes/fixed_tables.h"
#include "onnx_fp8/check.h"
#include "onnx_fp8/glob.h"

namespace onnx_fp8 {
namespace {

using Names = std::set<std::string>;

// What a value is to the rule.
struct Kind {
  enum Tag {
    kAux,        // derived from shapes, integer inputs and constants
    kOne,        // a one-element constant
    kLive,       // depends on float data
    kTravelling  // initializers on their way to their first use
  } tag = kAux;
  Names names = {};
};

using Kinds = std::unordered_map<std::string, Kind>;

bool IsView(const Node& node) {
  static const std::set<std::string, std::less<>> kViews = {
      "Transpose", "Reshape",  "Squeeze",         "Unsqueeze",  "Cast",
      "CastLike",  "Identity", "Slice",           "Split",      "Concat",
      "Expand",    "Flatten",  "SplitToSequence", "SequenceAt", "Tile",
      "Gather",    "GatherND"};
  return kViews.contains(node.op);
}

// Operands of these are bounds, exponents or fill values, never weights.
bool TakesNoWeights(const Node& node) {
  static const std::set<std::string, std::less<>> kOps = {
      "Clip", "Pad",    "Resize",         "Pow",
      "Max",  "Min",    "Equal",          "Greater",
      "Less", "OneHot", "GreaterOrEqual", "LessOrEqual"};
  return kOps.contains(node.op);
}

// Operand slots that hold no weights although the op takes some.
bool SkipsSlot(const Node& node, size_t slot) {
  if (node.op == "BatchNormalization") return slot == 3 || slot == 4;
  return node.op == "Where" && slot == 0;
}

bool OneElement(const Tensor& t) { return t.size() == 1; }

class Rule {
 public:
  explicit Rule(const Graph& graph) {
    Kinds kinds;
    for (const Value* value : graph.Values()) {
      if (value->is_initializer()) {
        kinds[value->name] = InitializerKind(*value);
      } else if (value->is_input) {
        kinds[value->name].tag =
            IsFloat(value->dtype) ? Kind::kLive : Kind::kAux;
      }
    }
    Visit(graph, kinds);
  }

  // Name → where it met live data.
  const std::unordered_map<std::string, std::string>& found() const {
    return found_;
  }
  // Name → where it met something that makes it a constant.
  const std::unordered_map<std::string, std::string>& lost() const {
    return lost_;
  }
  const Names& running() const { return running_; }

 private:
  Kind InitializerKind(const Value& value) {
    initializers_.insert(value.name);
    if (IsFloat(value.dtype)) return {Kind::kTravelling, {value.name}};
    return {OneElement(value.data) ? Kind::kOne : Kind::kAux};
  }

  void Found(const Names& names, const Node& node) {
    for (const std::string& name : names)
      found_.try_emplace(name, node.Where());
  }

  Kind OfConstant(const Node& node) {
    const Tensor* tensor = node.TensorAttribute("value");
    bool one = node.Has("value_float") || node.Has("value_int") ||
               (tensor && OneElement(*tensor));
    return {one ? Kind::kOne : Kind::kAux};
  }

  Kind OfView(const Node& node, const std::vector<Kind>& in) {
    bool gather = node.op == "Gather" || node.op == "GatherND";
    if (gather && in.size() > 1 && in[1].tag != Kind::kOne &&
        !initializers_.contains(node.in(1)->name) &&
        in[0].tag == Kind::kTravelling) {
      Found(in[0].names, node);
      return {Kind::kLive};
    }
    // All operands of Concat are data; of other views the first.
    size_t data =
        node.op == "Concat" ? in.size() : std::min<size_t>(1, in.size());
    Kind out = in.empty() ? Kind{} : in[0];
    bool live = false;
    Names travelling;
    for (size_t i = 0; i < data; ++i) {
      live |= in[i].tag == Kind::kLive;
      travelling.insert(in[i].names.begin(), in[i].names.end());
    }
    if (live) {
      Found(travelling, node);
      return {Kind::kLive};
    }
    if (!travelling.empty()) return {Kind::kTravelling, travelling};
    return out;
  }

  Kind OfOperation(const Node& node, const std::vector<Kind>& in) {
    bool live = std::ranges::any_of(
        in, [](const Kind& k) { return k.tag == Kind::kLive; });
    if (live) {
      for (size_t i = 0; i < in.size(); ++i) {
        bool weight = !SkipsSlot(node, i) && !TakesNoWeights(node);
        if (weight) {
          Found(in[i].names, node);
        } else {
          Lost(in[i].names, node);
        }
      }
      return {Kind::kLive};
    }
    Names travelling;
    bool alike = true;
    bool ones = !in.empty();
    for (const Kind& kind : in) {
      travelling.insert(kind.names.begin(), kind.names.end());
      alike &= kind.tag == Kind::kTravelling || kind.tag == Kind::kOne;
      ones &= kind.tag == Kind::kOne;
    }
    if (travelling.empty()) return {ones ? Kind::kOne : Kind::kAux};
    if (alike) return {Kind::kTravelling, travelling};
    Lost(travelling, node);
    return {Kind::kAux};
  }

  void Lost(const Names& names, const Node& node) {
    for (const std::string& name : names) lost_.try_emplace(name, node.Where());
  }

  // Bodies see the values around them; their own inputs count as live. Returns
  // what the outputs are: live if any body's output is.
  Kind OfSubgraphs(const Node& node, Kinds& kinds) {
    bool live = node.op != "If";
    for (const auto& [key, attribute] : node.attributes) {
      auto* inner = std::get_if<std::shared_ptr<Graph>>(&attribute);
      if (!inner) continue;
      // The body's own values hide those of their names outside, for a while.
      std::vector<std::pair<std::string, std::optional<Kind>>> hidden;
      for (const Value* value : (*inner)->Values()) {
        bool own =
            value->producer || value->is_input || value->is_initializer();
        if (!own) continue;
        auto it = kinds.find(value->name);
        hidden.push_back({value->name, {}});
        if (it != kinds.end()) hidden.back().second = it->second;
        kinds[value->name] = {value->is_input ? Kind::kLive : Kind::kAux};
      }
      Visit(**inner, kinds);
      for (const Value* value : (*inner)->outputs) {
        live |= kinds[value->name].tag == Kind::kLive;
      }
      for (auto& [name, kind] : hidden) {
        if (kind) {
          kinds[name] = *kind;
        } else {
          kinds.erase(name);
        }
      }
    }
    return {live ? Kind::kLive : Kind::kAux};
  }

  static bool HasSubgraph(const Node& node) {
    return node.op == "If" || node.op == "Loop" || node.op == "Scan";
  }

  void Visit(const Graph& graph, Kinds& kinds) {
    static const std::set<std::string, std::less<>> kShapes = {
        "Shape", "Size", "Range", "ConstantOfShape", "NonZero"};
    for (const Node& node : graph.nodes()) {
      std::vector<Kind> in;
      for (const Value* value : node.inputs()) {
        in.push_back(value ? kinds[value->name] : Kind{Kind::kOne});
      }
      Kind out;
      if (HasSubgraph(node)) {
        out = OfSubgraphs(node, kinds);
        if (out.tag == Kind::kAux) out = OfOperation(node, in);
      } else if (node.op == "Constant") {
        out = OfConstant(node);
      } else if (kShapes.contains(node.op)) {
        out = {};
      } else if (IsView(node)) {
        out = OfView(node, in);
      } else {
        out = OfOperation(node, in);
      }
      if (node.Is("BatchNormalization") && node.Int("training_mode", 0) != 0) {
        for (size_t i : {3, 4}) {
          if (node.in(i)) running_.insert(node.in(i)->name);
        }
      }
      for (const Value* value : node.outputs()) {
        if (value) kinds[value->name] = out;
      }
    }
  }

  std::unordered_map<std::string, std::string> found_;
  std::unordered_map<std::string, std::string> lost_;
  Names running_;
  std::set<std::string> initializers_;
};

// Scalars of the arithmetic look like scalar parameters; exporters give them
// rank 0, or a name of their own making where an optimisation reshaped them.
bool CannotTell(const Value& value) {
  return OneElement(value.data) &&
         (value.data.rank() == 0 || IsMadeUpName(value.name));
}

std::vector<Value*> Matching(const Graph& graph, const ParameterNames& names,
                             const std::string& pattern, const char* flag) {
  std::vector<Value*> matches;
  for (Value* value : graph.Initializers()) {
    if (!IsFloat(value->dtype)) continue;
    auto named = names.find(value->name);
    if (MatchesGlob(pattern, value->name) ||
        (named != names.end() && MatchesGlob(pattern, named->second.fqn))) {
      matches.push_back(value);
    }
  }
  Check(!matches.empty(), "[", graph.file, "] ", flag, " ", pattern,
        " matches no float initializer; `onnx-fp8 inspect` lists them");
  return matches;
}

}  // namespace

std::vector<InitializerReport> MarkParameters(
    Graph& graph, const ParameterPatterns& patterns) {
  Rule rule(graph);
  auto tables = FixedTables(graph);
  std::vector<InitializerReport> reports;
  std::unordered_map<const Value*, size_t> index;
  for (Value* value : graph.Initializers()) {
    std::string reason;
    value->role = Role::kNone;
    auto found = rule.found().find(value->name);
    auto lost = rule.lost().find(value->name);
    if (!IsFloat(value->dtype)) {
      reason = Concat("constant: ", Name(value->dtype), " data");
    } else if (rule.running().contains(value->name)) {
      value->role = Role::kState;
      reason = "state: running statistics of BatchNormalization";
    } else if (found != rule.found().end() && CannotTell(*value)) {
      reason = "constant: one element (name it with --train to train it)";
    } else if (auto table = tables.find(value); table != tables.end()) {
      reason =
          "constant: " + table->second + " (name it with --train to train it)";
    } else if (found != rule.found().end()) {
      value->role = Role::kParameter;
      reason = "trained: meets data at " + found->second;
    } else if (lost != rule.lost().end()) {
      reason = "constant: no weight of " + lost->second;
    } else {
      reason = "constant: meets no data";
    }
    index[value] = reports.size();
    reports.push_back({value, std::move(reason)});
  }
  const ParameterNames names = NameParameters(graph);
  auto override_role = [&](const std::vector<std::string>& globs,
                           const char* flag, Role role) {
    for (const std::string& pattern : globs) {
      for (Value* value : Matching(graph, names, pattern, flag)) {
        if (role == Role::kFrozen && value->role != Role::kParameter) continue;
        value->role = role;
        reports[index[value]].reason =
            Concat(role == Role::kFrozen ? "frozen: " : "trained: ", flag, " ",
                   pattern);
      }
    }
  };
  override_role(patterns.freeze, "--freeze", Role::kFrozen);
  override_role(patterns.train, "--train", Role::kParameter);
  return reports;
}

}  // namespace onnx_fp8
