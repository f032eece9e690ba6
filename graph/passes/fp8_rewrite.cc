// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/fp8_rewrite.h"

#include "graph/builder.h"
#include "graph/views.h"
#include "onnx_fp8/check.h"
#include "onnx_fp8/float8.h"

namespace onnx_fp8 {
namespace {

// A quantised value: outputs of Quantize*, shared by all readers.
struct Quantised {
  Value* q;
  Value* scale;
};

class Rewriter {
 public:
  Rewriter(Graph& graph, const Recipe& recipe, Fp8Plan* plan)
      : graph_(graph), recipe_(recipe), plan_(plan) {}

  void Run() {
    for (GemmDecision& decision : plan_->decisions) {
      if (decision.fp8) Rewrite(decision);
    }
    if (!plan_->slots.empty()) AddState();
    graph_.Sort();
  }

 private:
  void Rewrite(const GemmDecision& decision) {
    Node& node = *decision.gemm.node;
    Builder b(graph_, node.out(0)->name + ".", &node);
    b.set_metadata(node.metadata);
    Quantised operands[2];
    for (size_t i : {0, 1}) operands[i] = Quantise(b, decision, i);
    Attributes attributes = {
        {"transA", node.Int("transA", 0)},
        {"transB", node.Int("transB", 0)},
        {"role", std::string(Name(decision.gemm.role))},
        {"fqn", decision.fqn},
        {"recipe", recipe_.name},
    };
    std::vector<Value*> in = {operands[0].q, operands[0].scale, operands[1].q,
                              operands[1].scale};
    float alpha = node.Float("alpha", 1);
    float beta = node.Float("beta", 1);
    Value* c = node.in(2);
    bool vector = c && alpha == 1 && beta == 1 && c->rank() == 1 &&
                  c->dim(0) == decision.gemm.n;
    if (vector) in.push_back(c);
    Value* y = b.Ours(vector ? "ScaledMatMulBias" : "ScaledMatMul", in,
                      std::move(attributes));
    y->producer->name = node.name;
    if (alpha != 1) y = b.Mul(y, b.Scalar(alpha, y));
    if (c && !vector) {
      y = b.Add(y, beta == 1 ? c : b.Mul(c, b.Scalar(beta, y)));
    }
    Value* old = node.out(0);
    std::string name = old->name;
    graph_.ReplaceUses(old, y);
    graph_.RemoveNode(&node);
    graph_.Rename(y, name);
  }

  Quantised Quantise(Builder& b, const GemmDecision& decision, size_t slot) {
    const GemmInfo& gemm = decision.gemm;
    int i = static_cast<int>(slot);
    const char* operand = i == gemm.weight_slot ? "weight"
                          : i == gemm.grad_slot ? "grad_output"
                                                : "input";
    const TensorRecipe& how = i == gemm.weight_slot ? recipe_.weight
                              : i == gemm.grad_slot ? recipe_.grad_output
                                                    : recipe_.input;
    Value* x = gemm.node->in(slot);
    auto [it, added] = copies_.try_emplace({x, how.dtype});
    if (!added) return it->second;
    Attributes attributes = {{"to", static_cast<int64_t>(how.dtype)},
                             {"q_max", Float8Max(how.dtype)}};
    std::vector<Value*> made;
    if (how.scaling == Scaling::kDynamic) {
      made = b.Ops("QuantizeTensor", {x}, 3, std::move(attributes), kDomain);
    } else {
      auto position = static_cast<int64_t>(plan_->slots.size());
      Value* scale = b.Op("Gather", {ScaleState(), b.Int(position)},
                          {{"axis", int64_t{0}}});
      made = b.Ops("QuantizeWith", {x, scale}, 3, std::move(attributes),
                   kDomain);
      plan_->slots.push_back(
          {decision.fqn, Name(gemm.role), operand, how.dtype, made[2]});
    }
    made[0]->producer->attributes["fqn"] = decision.fqn;
    made[0]->producer->attributes["operand"] = std::string(operand);
    plan_->amaxes.push_back(made[2]);
    return it->second = {made[0], made[1]};
  }

  // The scales' state tensor; its size is known at the end only.
  Value* ScaleState() {
    if (!plan_->scale) {
      plan_->scale = graph_.AddInitializer(graph_.FreshName("fp8.scale"),
                                           Tensor::Zeros(DType::kFloat, {1}));
      plan_->scale->role = Role::kState;
    }
    return plan_->scale;
  }

  void AddState() {
    auto n = static_cast<int64_t>(plan_->slots.size());
    plan_->scale->data = Tensor::Zeros(DType::kFloat, {n});
    plan_->scale->shape = Shape{n};
    plan_->history = graph_.AddInitializer(
        graph_.FreshName("fp8.amax_history"),
        Tensor::Zeros(DType::kFloat, {recipe_.amax_history, n}));
    plan_->history->role = Role::kState;
    std::vector<float> q_max;
    for (const ScaleSlot& slot : plan_->slots) {
      q_max.push_back(Float8Max(slot.format));
    }
    plan_->q_max = graph_.AddInitializer(graph_.FreshName("fp8.q_max"),
                                         Tensor::From<float>({n}, q_max));
  }

  Graph& graph_;
  const Recipe& recipe_;
  Fp8Plan* plan_;
  std::map<std::pair<Value*, DType>, Quantised> copies_;
};

}  // namespace

std::vector<GemmDecision> DecideGemms(const std::vector<GemmInfo>& gemms,
                                      const Recipe& recipe) {
  std::vector<GemmDecision> decisions;
  for (const GemmInfo& gemm : gemms) {
    const Node& node = *gemm.node;
    GemmDecision d;
    d.gemm = gemm;
    d.node = node.name.empty() ? node.out(0)->name : node.name;
    d.module = ModulePath(node);
    if (gemm.weight) d.fqn = gemm.weight->name;
    bool two_d = node.in(0)->rank() == 2 && node.in(1)->rank() == 2;
    if (gemm.role == GemmRole::kNone) {
      bool batched = node.in(0)->rank() > 2 || node.in(1)->rank() > 2;
      d.reason = batched ? "attention" : "not a weight";
    } else if (!node.Is("Gemm") || !two_d) {
      d.reason = "batched weight";
    } else if (node.in(0)->dtype != DType::kFloat) {
      d.reason = Concat("computes in ", Name(node.in(0)->dtype));
    } else if (!recipe.enabled) {
      d.reason = "recipe off";
    } else if (recipe.Filters(d.fqn) ||
               (!d.module.empty() && recipe.Filters(d.module))) {
      d.reason = "filtered";
    } else {
      d.fp8 = true;
      d.reason = gemm.weight->role == Role::kFrozen ? "frozen: no wgrad"
                                                    : "linear";
    }
    decisions.push_back(std::move(d));
  }
  return decisions;
}

Fp8Plan Fp8Rewrite(Graph& graph, const Recipe& recipe, Value* seed,
                   const std::vector<std::pair<Value*, Value*>>& gradients) {
  Fp8Plan plan;
  plan.decisions = DecideGemms(ClassifyGemms(graph, seed, gradients), recipe);
  if (recipe.enabled) Rewriter(graph, recipe, &plan).Run();
  return plan;
}

}  // namespace onnx_fp8
