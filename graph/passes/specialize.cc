// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/specialize.h"

#include <algorithm>
#include <bit>
#include <chrono>

#include "base/check.h"
#include "base/random.h"
#include "graph/infer_shapes.h"
#include "graph/node_cost.h"
#include "graph/onnx/check_inference.h"
#include "graph/op_facts.h"
#include "graph/passes/specializer.h"

namespace onnx_fp8 {
namespace {

// Constants with more bytes, or with more operations to fold, are computed in
// each step.
constexpr int64_t kMaxFoldedBytes = int64_t{16} << 20;
constexpr double kMaxFoldedWork = 1 << 30;

bool IsRandom(const Node& node) {
  return FactsOf(node).kind == OpKind::kRandom;
}

// The seed of a node's copy in a later iteration. Seeds of Dropout are
// integers. Other ops have floats, which runtimes read as whole numbers: no two
// of the first 2^24 copies have the same.
Attribute SeedOfVisit(const Node& node, int64_t visit) {
  auto count = static_cast<uint64_t>(visit);
  if (node.Is("Dropout")) {
    auto seed = static_cast<uint64_t>(node.Int("seed", 0));
    return static_cast<int64_t>(RandomBits(seed, count) >> 1);
  }
  constexpr uint64_t kWholes = uint64_t{1} << 24, kOddStride = 10368889;
  uint64_t first =
      RandomBits(std::bit_cast<uint32_t>(node.Float("seed", 0)), 0);
  return static_cast<float>((first + count * kOddStride) % kWholes);
}

int64_t CountNodes(const Graph& graph) {
  int64_t count = 0;
  for (const Node& node : graph.nodes()) {
    ++count;
    for (const Graph* body : node.Subgraphs()) count += CountNodes(*body);
  }
  return count;
}

// The part of the work that grows with the node: operands, attributes, texts.
int64_t CopyWork(const Node& node) {
  constexpr size_t kEach = 256;  // each counts like this many elements
  size_t work = (node.inputs().size() + node.outputs().size()) * kEach;
  work += node.name.size();
  for (const Value* out : node.outputs()) work += out ? out->name.size() : 0;
  for (const auto& [key, text] : node.metadata) work += text.size();
  for (const auto& [key, attribute] : node.attributes) {
    std::visit(
        [&](const auto& value) {
          if constexpr (requires { value.size(); }) {
            work += static_cast<size_t>(value.size());
          }
        },
        attribute);
  }
  return static_cast<int64_t>(work);
}

// Bytes of a result. If its size is not known before (NonZero, Unique,
// Compress), an upper bound: an index per axis for each element.
int64_t MostBytes(const Node& node, const Value& result) {
  if (result.concrete()) {
    return NumElements(*result.shape) *
           static_cast<int64_t>(ByteSize(result.dtype));
  }
  int64_t most = 0;
  for (const Value* in : node.inputs()) {
    if (!in || !in->concrete()) continue;
    int64_t each = static_cast<int64_t>(sizeof(int64_t)) * (in->rank() + 1);
    most = std::max(most, NumElements(*in->shape) * each);
  }
  return most;
}

// Dropout that passes its input on: not in training mode, or ratio 0.
bool IsNoDropout(const std::vector<Value*>& in) {
  auto constant = [&](size_t i) {
    return i < in.size() && in[i] && in[i]->is_constant() &&
           in[i]->data.size() == 1;
  };
  bool given = in.size() > 2 && in[2];
  if (!given) return true;
  if (constant(2) && IntAt(in[2]->data, 0) == 0) return true;
  return constant(1) && DoubleAt(in[1]->data, 0) == 0;
}

}  // namespace

Value* Specializer::Constant(Tensor data, const std::string& hint) {
  return out_.AddInitializer(out_.FreshName(hint), std::move(data));
}

Entry Specializer::Lookup(Scope& scope, const Value* value) {
  auto it = scope.entries.find(value);
  if (it != scope.entries.end()) {
    const Entry& entry = it->second;
    if (entry.is_sequence) {  // a sequence is copied several times
      spending_.Take(&Budgets::work, 8 * std::ssize(entry.sequence),
                     "sequence " + value->name);
    }
    return entry;
  }
  if (value->is_initializer()) {
    Value* copy = Constant(value->data, value->name);
    copy->role = value->role;
    if (value->is_input) {  // a default that may be fed
      copy->is_input = true;
      out_.inputs.push_back(copy);
    }
    return scope.entries[value] = Entry{copy, {}, false};
  }
  Scope* outer = scope.outer;
  while (outer) {
    const Value* there = outer->graph->Find(value->name);
    if (there) return Lookup(*outer, there);
    outer = outer->outer;
  }
  Fail("[", scope.graph->file, "] value \"", value->name,
       "\" is read before it is computed");
}

void Specializer::Walk(Scope& scope) {
  for (const Node& node : scope.graph->nodes()) Visit(scope, node);
}

void Specializer::Bind(Scope& scope, const Value* old, Value* value) {
  if (old) scope.entries[old] = Entry{value, {}, false};
}

bool Specializer::Alias(Scope& scope, const Node& node,
                        const std::vector<Value*>& in) {
  Value* x = in.empty() ? nullptr : in[0];
  if (!x) return false;
  bool same = node.Is("Identity") ||
              (node.Is("Cast") &&
               node.Int("to", 0) == static_cast<int64_t>(x->dtype)) ||
              (node.Is("CastLike") && in.size() > 1 && in[1] &&
               in[1]->dtype == x->dtype) ||
              (node.Is("Dropout") && !node.out(1) && IsNoDropout(in)) ||
              ((node.Is("Sum") || node.Is("Mean") || node.Is("Max") ||
                node.Is("Min") || node.Is("Concat")) &&
               in.size() == 1);
  if (!same) return false;
  CheckDeclared(node, 0, node.out(0)->dtype, x->dtype);
  Bind(scope, node.out(0), x);
  return true;
}

Value* Specializer::TensorAt(Scope& scope, const Node& node, size_t i) {
  Check(node.in(i) != nullptr, "[", node.Where(), "] expected input ", i,
        ", got none");
  Entry entry = Lookup(scope, node.in(i));
  Check(!entry.is_sequence, "[", node.Where(),
        "] expected tensors, got the "
        "sequence ",
        node.in(i)->name);
  return entry.value;
}

void Specializer::Visit(Scope& scope, const Node& node) {
  spending_.Take(&Budgets::visits, 1, node);
  if (VisitControlFlow(scope, node) || VisitSequence(scope, node)) return;
  std::vector<Value*> in;
  for (size_t i = 0; i < node.inputs().size(); ++i) {
    in.push_back(node.in(i) ? TensorAt(scope, node, i) : nullptr);
  }
  if (Alias(scope, node, in) || VisitBounded(scope, node, in)) return;
  if ((node.Is("Shape") || node.Is("Size")) && in.size() == 1 && in[0]) {
    Bind(scope, node.out(0), FoldShape(node, *in[0]));
    return;
  }
  Node* copy = Copy(node, in);
  if (IsRandom(*copy)) MakeDrawItsOwn(node, copy);
  spending_.Take(&Budgets::work, CopyWork(*copy) + InferenceWork(*copy), *copy);
  InferNode(*copy, out_.opset);
  for (size_t i = 0; i < node.outputs().size(); ++i) {
    if (!node.out(i)) continue;
    CheckDeclared(node, i, node.out(i)->dtype, copy->out(i)->dtype);
    Bind(scope, node.out(i), copy->out(i));
  }
  if (Fold(scope, node, copy)) return;
  RequireShapes(*copy);
  spending_.Take(&Budgets::nodes, 1, *copy);
}

bool Specializer::VisitBounded(Scope& scope, const Node& node,
                               const std::vector<Value*>& in) {
  if (!bounded_.Concerns(node, in)) return false;
  // An input whose value may be known decides before a bound does.
  for (const Value* value : in) {
    if (value && !SourcesOf(node, value).data) AskFor(node, value, "its sizes");
  }
  auto before = static_cast<int64_t>(out_.nodes().size());
  std::vector<Value*> results = bounded_.Visit(node, in);
  spending_.Take(&Budgets::nodes,
                 static_cast<int64_t>(out_.nodes().size()) - before, node);
  for (size_t i = 0; i < results.size(); ++i) {
    if (!node.out(i)) continue;
    CheckDeclared(node, i, node.out(i)->dtype, results[i]->dtype);
    Bind(scope, node.out(i), results[i]);
  }
  return true;
}

Node* Specializer::Copy(const Node& node, const std::vector<Value*>& in) {
  std::vector<std::string> names;
  for (const Value* value : node.outputs()) {
    names.push_back(value ? out_.FreshName(value->name) : "");
  }
  Node* copy = out_.AddNode(node.op, in, names, node.attributes, node.domain);
  copy->name = node.name;
  copy->metadata = node.metadata;
  if (node.Is("CastLike")) {
    copy->op = "Cast";
    copy->attributes = {{"to", static_cast<int64_t>(in[1]->dtype)}};
    out_.RemoveInput(copy, 1);
  }
  return copy;
}

// Random numbers depend on a node's name or seed (providers/seed.h). Nodes of
// one name, and the copies of a node in a loop, get names and seeds of their
// own. The first one keeps the file's.
void Specializer::MakeDrawItsOwn(const Node& node, Node* copy) {
  int64_t visit = random_visits_[&node]++;
  if (visit > 0 && copy->Has("seed")) {
    copy->attributes["seed"] = SeedOfVisit(*copy, visit);
  }
  if (node.name.empty()) return;  // then the result's name stands for it
  auto known = [](const Node& n) { return n.op + " " + n.name; };
  int64_t& number = random_names_[known(node)];
  while (number++ > 0) {
    copy->name = Concat(node.name, "#", number - 1);
    if (random_names_.emplace(known(*copy), 1).second) return;
  }
}

Value* Specializer::FoldShape(const Node& node, const Value& x) {
  ++folded_;
  const Shape& shape = *x.shape;
  if (node.Is("Size")) {
    return Constant(Tensor::Scalar<int64_t>(NumElements(shape)),
                    node.out(0)->name);
  }
  int64_t rank = x.rank();
  auto clamp = [&](int64_t axis) {
    return std::clamp<int64_t>(axis < 0 ? axis + rank : axis, 0, rank);
  };
  int64_t start = clamp(node.Int("start", 0));
  int64_t end = std::max(start, clamp(node.Int("end", rank)));
  return Constant(Tensor::Ints({shape.begin() + start, shape.begin() + end}),
                  node.out(0)->name);
}

// Folds `copy`, the new graph's copy of the node, if all its operands are
// constants. False if it must stay: random, no kernel, too large, too costly.
bool Specializer::Fold(Scope& scope, const Node& node, Node* copy) {
  if (IsRandom(*copy) || !evaluator_.CanEvaluate(*copy)) return false;
  std::vector<Tensor> inputs;
  for (const Value* value : copy->inputs()) {
    if (value && !value->is_constant()) return false;
    inputs.push_back(value ? value->data : Tensor());
  }
  int64_t bytes = 0;
  for (const Value* value : copy->outputs()) {
    if (!value) continue;
    if (value->shape && !Plausible(*value->shape)) return false;
    int64_t most = MostBytes(*copy, *value);
    if (value->concrete() && most > kMaxFoldedBytes) return false;
    bytes += most;
  }
  double work = CostOf(*copy).flops;
  if (work > kMaxFoldedWork) return false;
  spending_.Take(&Budgets::work, static_cast<int64_t>(work), *copy);
  spending_.Take(&Budgets::constants, bytes, *copy);
  std::vector<Tensor> results;
  try {
    results = evaluator_.Evaluate(*copy, inputs);
  } catch (const Error& error) {
    std::string text = error.what(), where = copy->Where();
    if (text.find(where) != std::string::npos) throw;
    Fail("[", where, "] ", text);
  }
  std::vector<std::string> names;
  for (const Value* value : copy->outputs()) {
    names.push_back(value ? value->name : "");
  }
  out_.RemoveNode(copy);
  for (size_t i = 0; i < results.size(); ++i) {
    if (!node.out(i)) continue;
    Bind(scope, node.out(i), Constant(std::move(results[i]), names[i]));
  }
  ++folded_;
  return true;
}

void Specializer::RequireShapes(const Node& node) const {
  bool open = std::ranges::any_of(node.outputs(), [](const Value* value) {
    return value && !value->concrete();
  });
  // Most ops take data as the first operand; others may be sizes.
  for (size_t i = 1; open && i < node.inputs().size(); ++i) {
    AskFor(node, node.in(i), "its sizes");
  }
  if (open) AskFor(node, node.in(0), "its sizes");
  for (const Value* value : node.outputs()) {
    Check(!value || (value->concrete() && value->dtype != DType::kUndefined),
          "[", node.Where(), "] shape of \"", value ? value->name : "",
          "\" depends on data, got ",
          value && value->shape ? ToString(*value->shape) : "no rank");
  }
  CheckSizes(node, node.outputs());
}

Graph& Specializer::Run(const Graph& graph,
                        const std::map<std::string, Shape>& shapes) {
  out_.name = graph.name;
  out_.file = graph.file;
  out_.opset = graph.opset;
  out_.metadata = graph.metadata;
  Scope scope{&graph, nullptr, {}};
  for (const Value* input : graph.inputs) {
    auto it = shapes.find(input->name);
    Check(it != shapes.end() && IsConcrete(it->second), "[", graph.file,
          "] expected a shape for input \"", input->name, "\"");
    const Shape& shape = it->second;
    bool fits = !input->shape || input->shape->size() == shape.size();
    for (size_t i = 0; fits && input->shape && i < shape.size(); ++i) {
      fits = (*input->shape)[i] < 0 || (*input->shape)[i] == shape[i];
    }
    Check(fits, "[", graph.file, "] expected input \"", input->name,
          "\" of shape ", ToString(input->shape.value_or(Shape{})), ", got ",
          ToString(shape));
    Check(Plausible(shape), "[", graph.file, "] expected input \"", input->name,
          "\" to fit into memory, got ", ToString(shape));
    auto known = values_.find(input->name);
    if (known == values_.end()) {
      Bind(scope, input, out_.AddInput(input->name, input->dtype, shape));
    } else {
      Tensor value = ConvertTo(Tensor::Scalar(known->second), input->dtype);
      Bind(scope, input, Constant(value.Reshaped(shape), input->name));
    }
  }
  Walk(scope);
  for (const Value* output : graph.outputs) AddOutput(scope, output);
  for (const StateBinding& binding : graph.state) {
    Value* next = Lookup(scope, binding.next).value;
    out_.state.push_back({Lookup(scope, binding.state).value, next});
  }
  return out_;
}

void Specializer::AddOutput(Scope& scope, const Value* output) {
  Entry entry = Lookup(scope, output);
  Check(!entry.is_sequence, "[", scope.graph->file, "] graph output \"",
        output->name, "\" is a sequence; expected a tensor");
  Value* value = entry.value;
  std::string decided = bounded_.DecidedBy(value);
  Check(decided.empty(), "[", scope.graph->file, "] graph output \"",
        output->name, "\" has as many rows as ", decided,
        " finds in the data; expected a number that the input shapes decide");
  if (value->name != output->name) {
    bool taken = out_.Find(output->name) != nullptr;
    bool listed = std::ranges::find(out_.outputs, value) != out_.outputs.end();
    if (value->producer && !taken && !listed) {
      out_.Rename(value, output->name);
    } else {
      Node* node =
          out_.AddNode("Identity", {value}, {out_.FreshName(output->name)});
      InferNode(*node, out_.opset);
      value = node->out(0);
    }
  }
  out_.outputs.push_back(value);
}

std::string UnreadReason(const SpecializeReport& report) {
  std::string where;
  for (const auto& [name, value] : report.values) {
    where += Concat(where.empty() ? " where " : ", ", name, "=", value);
  }
  return "in a branch that is not taken" +
         (where.empty() ? " at these shapes" : where);
}

std::string UnreadNote(const SpecializeReport& report) {
  if (report.unread.empty()) return "";
  return Concat(report.unread.size(), " of the parameters (", report.unread[0],
                " is one) are not trained: they are ", UnreadReason(report));
}

std::unique_ptr<Graph> Specialize(const Graph& graph,
                                  const std::map<std::string, Shape>& shapes,
                                  const Evaluator& evaluator,
                                  SpecializeReport* report,
                                  const InputValues& values,
                                  Spending* spending) {
  auto begin = std::chrono::steady_clock::now();
  Spending own;
  InputValues needed;
  for (;;) {
    auto out = std::make_unique<Graph>();
    Specializer specializer(*out, evaluator, needed,
                            spending ? *spending : own);
    try {
      specializer.Run(graph, shapes);
    } catch (const NeedsValues& error) {
      for (const std::string& name : error.inputs) {
        auto it = values.find(name);
        if (it == values.end()) throw Error(error.what());
        needed.insert(*it);
      }
      continue;
    }
    if (report) {
      report->nodes_before = CountNodes(graph);
      report->nodes_after = static_cast<int64_t>(out->nodes().size());
      report->folded = specializer.folded();
      std::chrono::duration<double> time =
          std::chrono::steady_clock::now() - begin;
      report->seconds = time.count();
      report->values = needed;
      for (const Value* value : graph.Initializers()) {
        if (value->role != Role::kParameter) continue;
        if (!out->Find(value->name)) report->unread.push_back(value->name);
      }
    }
    return out;
  }
}

}  // namespace onnx_fp8
