// SPDX-License-Identifier: Apache-2.0
#include "providers/ort/rewrite_products.h"

#include <map>
#include <optional>

#include "base/check.h"
#include "graph/fp8/fp8_rewrite.h"
#include "graph/fp8/gemm_matrices.h"
#include "graph/fp8/scale_names.h"
#include "graph/infer_shapes.h"
#include "graph/passes/trained_parameters.h"
#include "providers/ort/products_of_file.h"

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
