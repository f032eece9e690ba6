// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/trained_parameters.h"

#include <algorithm>
#include <optional>
#include <set>
#include <unordered_map>

#include "base/check.h"
#include "base/glob.h"
#include "graph/constants.h"
#include "graph/parameter_names.h"
#include "graph/passes/fixed_tables.h"
#include "graph/passes/tied_weights.h"

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

bool IsView(const Node& node) {
  static const std::set<std::string, std::less<>> kViews = {
      "Transpose", "Reshape",  "Squeeze",         "Unsqueeze",  "Cast",
      "CastLike",  "Identity", "Slice",           "Split",      "Concat",
      "Expand",    "Flatten",  "SplitToSequence", "SequenceAt", "Tile",
      "Gather",    "GatherND", "GatherElements"};
  return kViews.contains(node.op);
}

// Views too, but with other float operands: scales, a fill value.
bool IsResampling(const Node& node) {
  return node.op == "Resize" || node.op == "Pad";
}

// If such an op multiplies values, also those of integer inputs, by a constant,
// it is a layer and no arithmetic of masks and positions.
bool IsProduct(const Node& node) {
  static const std::set<std::string, std::less<>> kOps = {
      "MatMul", "Gemm", "Conv", "ConvTranspose",
      "Einsum", "LSTM", "GRU",  "RNN"};
  return kOps.contains(node.op);
}

// Operands of these are bounds, fill values or scales of codes, never weights.
bool TakesNoWeights(const Node& node) {
  static const std::set<std::string, std::less<>> kOps = {
      "Clip",        "Equal",          "Greater",
      "Less",        "OneHot",         "GreaterOrEqual",
      "LessOrEqual", "QuantizeLinear", "DequantizeLinear"};
  return kOps.contains(node.op);
}

// Operands of these are weights, except single numbers: a bound, a square.
bool TakesNoNumber(const Node& node) {
  return node.op == "Max" || node.op == "Min" || node.op == "Pow";
}

// Operand slots that hold no weights although the op takes weights.
bool SkipsSlot(const Node& node, size_t slot) {
  if (node.op == "BatchNormalization") return slot == 3 || slot == 4;
  return node.op == "Where" && slot == 0;
}

// Operands that name axes take no part in the computation.
bool IsAxes(const Node& node, size_t slot) {
  return slot == 1 && node.op.starts_with("Reduce");
}

bool OneElement(const Tensor& t) { return t.size() == 1; }

// A normalization without scale and bias is exported with ones and zeros.
bool IsPlaceholder(const Node& node, const Value& value, const Tensor& data) {
  if (!node.op.ends_with("Normalization") || !value.producer ||
      !IsMadeUpName(value.name)) {
    return false;
  }
  double number = DoubleAt(data, 0);
  if (number != 0 && number != 1) return false;
  for (int64_t i = 1; i < data.size(); ++i) {
    if (DoubleAt(data, i) != number) return false;
  }
  return true;
}

class Rule {
 public:
  Rule(const Graph& graph, const std::vector<HeldTensor>& tensors) {
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

  // Name → place where it met live data.
  const std::unordered_map<std::string, std::string>& found() const {
    return found_;
  }
  // Name → place where it met something that makes it a constant.
  const std::unordered_map<std::string, std::string>& lost() const {
    return lost_;
  }
  const Names& running() const { return running_; }
  // Tensors that lookups read.
  const Names& tables() const { return tables_; }

 private:
  static Kind KindOf(const HeldTensor& tensor) {
    if (IsFloat(tensor.data.dtype())) {
      return {Kind::kTravelling, {tensor.value->name}};
    }
    return {OneElement(tensor.data) ? Kind::kOne : Kind::kAux};
  }

  void Found(const Names& names, const Node& node) {
    for (const std::string& name : names)
      found_.try_emplace(name, node.Where());
  }

  void Lost(const Names& names, const Node& node) {
    for (const std::string& name : names) lost_.try_emplace(name, node.Where());
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
      Found(in[0].names, node);
      tables_.insert(in[0].names.begin(), in[0].names.end());
      return {Kind::kLive};
    }
    // All operands of Concat are data; of other views only the first.
    size_t data =
        node.op == "Concat" ? in.size() : std::min<size_t>(1, in.size());
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
      Found(travelling, node);
      return {Kind::kLive};
    }
    if (!travelling.empty()) return {Kind::kTravelling, travelling};
    return values ? Kind{Kind::kValues} : out;
  }

  // Constants meet data, or values of integer inputs, at an operand of the
  // node. Returns whether one of them is a weight there.
  bool Meet(const Node& node, size_t slot, const Names& names, bool data) {
    bool any = false;
    bool takes = !SkipsSlot(node, slot) && !TakesNoWeights(node);
    for (const std::string& name : names) {
      const HeldTensor& tensor = *held_.at(name);
      bool number = TakesNoNumber(node) && OneElement(tensor.data);
      // Positions times frequencies: rotary tables begin with that.
      bool frequencies = !data && AreFalling(tensor.data);
      bool weight = takes && !number && !frequencies &&
                    !IsPlaceholder(node, *tensor.value, tensor.data);
      weight ? Found({name}, node) : Lost({name}, node);
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
    if (live || (values && IsProduct(node))) {
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
      Found(travelling, node);
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
        Found(kind.names, node);
        kind = {Kind::kLive};
      }
    }
    return outputs;
  }

  static bool HasSubgraph(const Node& node) {
    return node.op == "If" || node.op == "Loop" || node.op == "Scan";
  }

  void Visit(const Graph& graph, Kinds& kinds, bool body = false) {
    static const std::set<std::string, std::less<>> kShapes = {
        "Shape", "Size", "Range", "ConstantOfShape", "NonZero"};
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
      } else if (kShapes.contains(node.op)) {
        out = {};
      } else if (IsView(node) || IsResampling(node)) {
        out = OfView(node, in);
      } else {
        out = OfOperation(node, in);
      }
      if (node.Is("BatchNormalization") && node.Int("training_mode", 0) != 0) {
        for (size_t i : {3, 4}) {
          if (node.in(i)) running_.insert(node.in(i)->name);
        }
      }
      for (size_t i = 0; i < node.outputs().size(); ++i) {
        if (!node.out(i)) continue;
        kinds[node.out(i)->name] = outputs.empty() ? out : outputs[i];
      }
    }
  }

  std::unordered_map<std::string, std::string> found_;
  std::unordered_map<std::string, std::string> lost_;
  Names running_, tables_;
  std::unordered_map<std::string, const HeldTensor*> held_;
};

// Scalars of the arithmetic look like scalar parameters. Exporters give them
// rank 0, or a made-up name if an optimization reshaped them.
bool CannotTell(const HeldTensor& tensor) {
  return OneElement(tensor.data) &&
         (tensor.data.rank() == 0 || IsMadeUpName(tensor.value->name));
}

// Decides and reports. Constants that get a role become initializers.
class Marker {
 public:
  explicit Marker(Graph& graph)
      : graph_(graph),
        tensors_(HeldTensors(graph)),
        rule_(graph, tensors_),
        tables_(FixedTables(tensors_)) {}

  void Mark() {
    for (HeldTensor& tensor : tensors_) {
      bool bound = IsState(tensor.value->role);
      if (!bound) tensor.value->role = Role::kNone;
      std::string reason =
          bound ? "state: each run of the file gives it a new value"
                : Decide(tensor);
      reports_.push_back(
          {tensor.value->name, tensor.value, tensor.data, std::move(reason)});
    }
    for (InitializerReport& report : reports_) {
      if (report.value->role != Role::kNone) Settle(report);
    }
    ParameterNames names = NameParameters(graph_);
    for (InitializerReport& report : reports_) {
      auto named = names.find(report.name);
      report.torch =
          named == names.end() ? ParameterName{report.name} : named->second;
    }
  }

  // Makes one tensor of those that hold the same numbers.
  void TieCopies() {
    std::vector<Value*> weights;
    for (const InitializerReport& report : reports_) {
      if (report.value->role == Role::kParameter) {
        weights.push_back(report.value);
      }
    }
    for (const Tie& tie : FindTies(weights, rule_.tables())) Apply(tie, "");
  }

  // "A=B".
  void TieNamed(const std::string& text) {
    size_t cut = text.find('=');
    Check(cut != std::string::npos && cut > 0 && cut + 1 < text.size(), "[",
          graph_.file, "] `ties` expected A=B, got ", text);
    InitializerReport& a = *Named(text.substr(0, cut));
    InitializerReport& b = *Named(text.substr(cut + 1));
    if (a.value == b.value) return;  // tied already
    Check(b.tied_to.empty(), "[", graph_.file, "] `ties` ", text, ": ", b.name,
          " is tied to ", b.tied_to, " already");
    for (InitializerReport* report : {&a, &b}) Settle(*report);
    auto transposed = HoldsTransposed(*a.value, *b.value);
    Check(transposed.has_value(), "[", graph_.file, "] `ties` ", text,
          ": expected the same numbers in both, as they are or transposed");
    Apply({a.value, b.value, *transposed}, "`ties` " + text);
  }

  void Override(const std::vector<std::string>& globs, const char* option,
                Role role) {
    for (const std::string& pattern : globs) {
      for (InitializerReport* report : Matching(pattern, option)) {
        Role before = report->value->role;
        if (role == Role::kFrozen && before != Role::kParameter) continue;
        report->value->role = role;
        report->reason =
            Concat(role == Role::kFrozen ? "frozen: " : "trained: ", option,
                   " ", pattern);
        Settle(*report);
      }
    }
  }

  // Single numbers in Constant nodes are not worth a report.
  std::vector<InitializerReport> TakeReports() {
    std::erase_if(reports_, [](const InitializerReport& report) {
      return report.value->producer &&
             (OneElement(report.data) || !IsFloat(report.data.dtype()));
    });
    return std::move(reports_);
  }

 private:
  // Sets the role and returns the reason.
  std::string Decide(const HeldTensor& tensor) {
    Value& value = *tensor.value;
    auto found = rule_.found().find(value.name);
    auto lost = rule_.lost().find(value.name);
    if (!IsFloat(tensor.data.dtype())) {
      return Concat("constant: ", Name(tensor.data.dtype()), " data");
    }
    if (rule_.running().contains(value.name)) {
      value.role = Role::kStatistic;
      return "state: running statistics of BatchNormalization";
    }
    if (found != rule_.found().end() && CannotTell(tensor)) {
      return "constant: one element (name it with `train` to train it)";
    }
    if (auto table = tables_.find(&value); table != tables_.end()) {
      return "constant: " + table->second +
             " (name it with `train` to train it)";
    }
    if (found != rule_.found().end()) {
      value.role = Role::kParameter;
      return "trained: meets data at " + found->second;
    }
    if (lost != rule_.lost().end()) {
      return "constant: no weight of " + lost->second;
    }
    return "constant: meets no data";
  }

  void Settle(InitializerReport& report) {
    Role role = report.value->role;
    report.value = AsInitializer(graph_, report.value);
    report.value->role = role;
  }

  void Apply(const Tie& tie, const std::string& option) {
    std::string first = tie.first->name, second = tie.second->name;
    InitializerReport& a = *Named(first);
    if (tie.second->role == Role::kParameter) a.value->role = Role::kParameter;
    for (InitializerReport& report : reports_) {
      if (report.value != tie.second) continue;
      report.reason = Concat("tied: one tensor with ", first,
                             tie.transposed ? ", transposed" : "",
                             option.empty() ? "" : ": ", option);
      // Tensors that were tied to the second one follow it.
      report.transposed = report.transposed != tie.transposed;
      report.tied_to = first;
      report.value = a.value;
    }
    onnx_fp8::Apply(graph_, tie);
  }

  bool Matches(const InitializerReport& report, const std::string& pattern) {
    return MatchesGlob(pattern, report.name) ||
           MatchesGlob(pattern, report.torch.fqn);
  }

  InitializerReport* Named(const std::string& name) {
    InitializerReport* found = nullptr;
    for (InitializerReport& report : reports_) {
      if (!IsFloat(report.data.dtype())) continue;
      if (report.name == name) return &report;
      if (report.torch.fqn == name) found = &report;
    }
    Check(found, "[", graph_.file, "] `ties` ", name,
          " is no float initializer; `onnx-fp8 inspect` lists them");
    return found;
  }

  // By the name of a copy too: it stands for the tensor to which it is tied.
  std::vector<InitializerReport*> Matching(const std::string& pattern,
                                           const char* option) {
    std::vector<InitializerReport*> matches;
    for (InitializerReport& report : reports_) {
      if (!IsFloat(report.data.dtype()) || !Matches(report, pattern)) continue;
      matches.push_back(report.tied_to.empty() ? &report
                                               : Named(report.tied_to));
    }
    Check(!matches.empty(), "[", graph_.file, "] ", option, " ", pattern,
          " matches no float initializer; `onnx-fp8 inspect` lists them");
    return matches;
  }

  Graph& graph_;
  std::vector<HeldTensor> tensors_;
  Rule rule_;
  std::unordered_map<const Value*, std::string> tables_;
  std::vector<InitializerReport> reports_;
};

}  // namespace

std::vector<InitializerReport> MarkParameters(
    Graph& graph, const ParameterPatterns& patterns) {
  Marker marker(graph);
  marker.Mark();
  if (patterns.tie_copies) marker.TieCopies();
  for (const std::string& pair : patterns.ties) marker.TieNamed(pair);
  marker.Override(patterns.freeze, "`freeze`", Role::kFrozen);
  marker.Override(patterns.train, "`train`", Role::kParameter);
  return marker.TakeReports();
}

}  // namespace onnx_fp8
