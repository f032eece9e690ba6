// SPDX-License-Identifier: Apache-2.0
#include "graph/fp8/fp8_rewrite.h"

#include <array>
#include <map>

#include "graph/fp8/gemm_matrices.h"
#include "graph/fp8/operand_copies.h"
#include "graph/fp8/scale_update.h"
#include "graph/op_facts.h"
#include "onnx_fp8/recipe_text.h"

namespace onnx_fp8 {
namespace {

bool FastAccumulation(const Recipe& recipe, GemmRole role) {
  return role == GemmRole::kForward ? recipe.fast_accum_forward
         : role == GemmRole::kDgrad ? recipe.fast_accum_dgrad
                                    : recipe.fast_accum_wgrad;
}

class Rewriter {
 public:
  // `names`: names of the scales; null: the graph tells them.
  Rewriter(Graph& graph, const Fp8Spec& spec, Fp8Plan* plan,
           const std::vector<ScaleSlot>* known, const ScaleNames* names)
      : graph_(graph),
        spec_(spec),
        plan_(plan),
        operands_(plan->decisions),
        names_(names ? *names
                     : NameScales(plan->decisions, operands_, spec.recipe)),
        copies_(graph, spec.scales, plan, names_, known) {}

  void Run() {
    for (const GemmDecision& decision : plan_->decisions) {
      if (decision.fp8) Rewrite(decision);
    }
    if (plan_->slots.empty()) return;
    AddScaleState(graph_, spec_.recipe, plan_);
    LabelSlots();
  }

 private:
  void LabelSlots() {
    std::vector<std::string> labels;
    for (const ScaleSlot& slot : plan_->slots) {
      labels.push_back(slot.Label());
    }
    plan_->labels.insert(plan_->labels.begin(), labels.begin(), labels.end());
  }

  void Rewrite(const GemmDecision& decision) {
    const GemmInfo& gemm = decision.gemm;
    Node& node = *gemm.node;
    Builder b(graph_, node.out(0)->name + ".", &node);
    b.set_metadata(node.metadata);
    auto operands = operands_.Of(gemm);
    bool swapped = operands[0].swaps_last;
    if (swapped) operands[0].value = Swapped(b, operands[0].value);
    Value* y = Product(b, decision, operands);
    if (swapped) y = b.SwapLast(y);
    y->producer->name = node.name;
    graph_.MoveOutput(node.out(0), y->producer, 0);
    graph_.RemoveNode(&node);
  }

  // x with its last two axes swapped; all readers share one.
  Value* Swapped(Builder& b, Value* x) {
    auto [it, added] = swapped_.try_emplace(x);
    if (added) it->second = b.SwapLast(x);
    return it->second;
  }

  Value* Product(Builder& b, const GemmDecision& decision,
                 const std::array<GemmMatrix, 2>& operands) {
    const Node& node = *decision.gemm.node;
    Quantized copies[2];
    std::vector<Value*> in;
    for (size_t i : {0, 1}) {
      // The sum runs over the first operand's columns and the second one's
      // rows.
      bool along_columns = operands[i].transposed == (i == 1);
      copies[i] = copies_.Get(b, decision, operands[i].value, operands[i].slot,
                              along_columns);
      in.insert(in.end(), {copies[i].q, copies[i].scale});
    }
    float alpha = node.Float("alpha", 1);
    float beta = node.Float("beta", 1);
    Value* c = node.in(2);
    bool vector = c && alpha == 1 && beta == 1 && c->shape && c->rank() == 1 &&
                  c->dim(0) == decision.gemm.n;
    if (vector) in.push_back(c);
    Attributes attributes = {{"transA", int64_t{operands[0].transposed}},
                             {"transB", int64_t{operands[1].transposed}},
                             {"role", std::string(Name(decision.gemm.role))},
                             {"fqn", decision.fqn},
                             {"recipe", RecipeText(decision.recipe)}};
    if (FastAccumulation(decision.recipe, decision.gemm.role)) {
      attributes["fast_accum"] = int64_t{1};
    }
    bool scalars = HasOneScale(copies[0]) && HasOneScale(copies[1]);
    if (!scalars) {
      attributes["a_block_rows"] = copies[0].block_rows;
      attributes["a_block_columns"] = copies[0].block_columns;
      attributes["b_block_rows"] = copies[1].block_rows;
      attributes["b_block_columns"] = copies[1].block_columns;
    }
    std::string op = scalars ? "ScaledMatMul" : "ScaledMatMulBlock";
    Value* y = b.Ours(vector ? op + "Bias" : op, in, std::move(attributes));
    if (alpha != 1) y = b.Mul(y, b.Scalar(alpha, y));
    if (c && !vector) {
      y = b.Add(y, beta == 1 ? c : b.Mul(c, b.Scalar(beta, y)));
    }
    return y;
  }

  // A scale of rank 0.
  static bool HasOneScale(const Quantized& copy) {
    return FactsOf(*copy.q->producer).scale != CodeScale::kBlocks;
  }

  Graph& graph_;
  const Fp8Spec& spec_;
  Fp8Plan* plan_;
  GemmMatrices operands_;
  const ScaleNames names_;
  OperandCopies copies_;
  std::map<const Value*, Value*> swapped_;
};

}  // namespace

Fp8Plan Fp8Rewrite(Graph& graph, const Fp8Spec& spec, Value* seed,
                   const std::vector<std::pair<Value*, Value*>>& gradients,
                   const std::vector<ScaleSlot>* known,
                   const ScaleNames* names) {
  Fp8Plan plan;
  plan.decisions = DecideGemms(ClassifyGemms(graph, seed, gradients), spec);
  Rewriter(graph, spec, &plan, known, names).Run();
  return plan;
}

}  // namespace onnx_fp8
