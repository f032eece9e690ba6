// SPDX-License-Identifier: Apache-2.0
#include "providers/ort/rewrite_products.h"

#include <map>
#include <optional>
#include <string>

#include "base/check.h"
#include "graph/fp8/fp8_rewrite.h"
#include "graph/fp8/gemm_matrices.h"
#include "graph/fp8/scale_names.h"
#include "graph/onnx/infer_shapes.h"
#include "graph/op_facts.h"
#include "graph/passes/trained_parameters.h"

namespace onnx_fp8 {
namespace {

std::vector<GemmDecision> Decide(Graph& graph, Fp8Spec& spec) {
  MarkParameters(graph);
  for (Node& node : graph.nodes()) {
    try {
      InferNode(node, graph.opset);
    } catch (const Error&) {
      // Shapes only refine the decision.
    }
  }
  spec.names = NameParameters(graph);
  return DecideGemms(ClassifyGemms(graph, nullptr, {}), spec);
}

using Nodes = std::vector<const Node*>;

bool IsProduct(const Node& node) {
  return FactsOf(node).kind == OpKind::kProduct;
}

// A session folds the transpose of a weight into a constant of the transpose's
// name, or into the product, which then reads the weight.
struct Constant {
  const Value* operand = nullptr;  // a constant matrix or its transpose
  const Value* weight = nullptr;   // the constant
};

// The node's first operand that is a constant matrix or its transpose.
Constant ConstantOf(const Node& node) {
  for (const Value* operand : node.inputs()) {
    const Value* matrix = operand;
    // The file may not say shapes, which PeelTranspose asks for.
    while (matrix && matrix->producer && matrix->producer->Is("Transpose")) {
      matrix = matrix->producer->in(0);
    }
    if (matrix && matrix->is_initializer() && matrix->data.rank() == 2) {
      return {operand, matrix};
    }
  }
  return {};
}

// Whether both read a value of one name, besides the constant. A fusion may put
// a Reshape before the session's product, and exchange its operands.
bool ReadOneInput(const Node& session, const Node& file) {
  for (size_t i : {0, 1}) {
    const Value* x = session.in(i);
    if (x == ConstantOf(session).operand) continue;
    if (x->producer && x->producer->Is("Reshape")) x = x->producer->in(0);
    for (size_t j : {0, 1}) {
      const Value* y = file.in(j);
      if (y == ConstantOf(file).operand) continue;
      if (y->name == x->name || y->name == session.in(i)->name) return true;
    }
  }
  return false;
}

// The only node that fits; null if no node fits, or several do.
const Node* OnlyOne(const Nodes& nodes, auto fits) {
  const Node* found = nullptr;
  for (const Node* node : nodes) {
    if (!fits(*node)) continue;
    if (found) return nullptr;
    found = node;
  }
  return found;
}

// Finds products of a session's graph, MatMul and Gemm, in the model's file.
class ProductsOfFile {
 public:
  // REQUIRES: the file's constants are initializers (MarkParameters); it
  // outlives this.
  explicit ProductsOfFile(const Graph& file) {
    for (const Node& node : file.nodes()) {
      if (!IsProduct(node)) continue;
      by_name_[node.name].push_back(&node);
      auto [operand, weight] = ConstantOf(node);
      if (!operand) continue;
      by_constant_[operand->name].push_back(&node);
      if (weight != operand) by_constant_[weight->name].push_back(&node);
    }
    by_name_.erase("");
  }

  // The file's node for the session's: the node of the same name; or else the
  // node that reads the same constant, and of several the one that reads the
  // same input. Null if there is none, or if it is not certain.
  const Node* Find(const Node& node) const {
    if (!IsProduct(node)) return nullptr;
    auto named = by_name_.find(node.name);
    bool certain = named != by_name_.end() && named->second.size() == 1;
    if (certain) return named->second[0];
    const Value* constant = ConstantOf(node).operand;
    auto readers = by_constant_.find(constant ? constant->name : "");
    if (readers == by_constant_.end()) return nullptr;
    const Nodes& all = readers->second;
    if (all.size() == 1) return all[0];
    return OnlyOne(
        all, [&](const Node& other) { return ReadOneInput(node, other); });
  }

 private:
  std::map<std::string, Nodes> by_name_, by_constant_;
};

// What the file tells about products of the session.
class Notes {
 public:
  Notes(std::unique_ptr<Graph> file, Fp8Spec spec)
      : file_(std::move(file)),
        decisions_(Decide(*file_, spec)),
        products_(*file_),
        names_(NameScales(decisions_, GemmMatrices(decisions_), spec.recipe)) {
    for (const GemmDecision& decision : decisions_) {
      gemms_[decision.gemm.node] = &decision.gemm;
    }
  }

  const std::string& file() const { return file_->file; }

  void AddModules(Graph& graph) const {
    for (Node& node : graph.nodes()) {
      const Node* original = products_.Find(node);
      if (original) node.metadata = original->metadata;
    }
  }

  // The names of the scales of the products that are admitted to FP8.
  ScaleNames NamesOfScales(const std::vector<GemmDecision>& decisions) const {
    ScaleNames names;
    for (const GemmDecision& decision : decisions) {
      if (!decision.fp8) continue;
      const GemmInfo& gemm = decision.gemm;
      const Node* original = products_.Find(*gemm.node);
      for (int slot : {0, 1}) {
        bool weight = slot == gemm.weight_slot;
        auto found = names_.find({original, SlotIn(original, weight)});
        Check(found != names_.end(), "[", file_->file,
              "] expected a product that reads ", decision.fqn, " as ",
              decision.node,
              " of the session does, whose static scales it would name; got "
              "none, or several without names");
        names[{gemm.node, slot}] = found->second;
      }
    }
    return names;
  }

 private:
  // The slot of the weight, or of the other operand. A session may exchange
  // them.
  int SlotIn(const Node* original, bool weight) const {
    auto gemm = gemms_.find(original);
    int slot = gemm == gemms_.end() ? -1 : gemm->second->weight_slot;
    return weight ? slot : 1 - slot;
  }

  std::unique_ptr<Graph> file_;
  std::vector<GemmDecision> decisions_;
  ProductsOfFile products_;
  ScaleNames names_;
  std::map<const Node*, const GemmInfo*> gemms_;
};

}  // namespace

std::vector<GemmDecision> RewriteProducts(
    const std::vector<std::shared_ptr<Graph>>& graphs, Fp8Spec spec,
    std::unique_ptr<Graph> file) {
  bool fixed = spec.recipe.Uses(Scaling::kStatic);
  Check(file || !fixed,
        "[ep.onnx_fp8.recipe] expected a session made from a model's file, "
        "which names the static scales, got one from memory");
  std::optional<Notes> notes;
  if (file) notes.emplace(std::move(file), spec);
  std::vector<GemmDecision> all;
  for (const std::shared_ptr<Graph>& graph : graphs) {
    if (notes) {
      graph->file = notes->file();
      notes->AddModules(*graph);
    }
    auto decisions = Decide(*graph, spec);
    ScaleNames names;
    if (fixed) names = notes->NamesOfScales(decisions);
    Fp8Rewrite(*graph, spec, nullptr, {}, nullptr, fixed ? &names : nullptr);
    for (Value* value : graph->Initializers()) value->role = Role::kNone;
    all.insert(all.end(), decisions.begin(), decisions.end());
  }
  return all;
}

}  // namespace onnx_fp8
