// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/fp8_rewrite.h"

#include <nlohmann/json.hpp>

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
  }

 private:
  void Rewrite(const GemmDecision& decision) {
    const GemmInfo& gemm = decision.gemm;
    Node& node = *gemm.node;
    Builder b(graph_, node.out(0)->name + ".", &node);
    b.set_metadata(node.metadata);
    Matrix operands[2] = {PeelTranspose(node.in(0)), PeelTranspose(node.in(1))};
    operands[0].transposed ^= node.Int("transA", 0) != 0;
    operands[1].transposed ^= node.Int("transB", 0) != 0;
    // W @ x with leading axes on x: (x^T @ W^T)^T.
    bool swapped = gemm.weight_slot == 0 && node.in(1)->shape &&
                   node.in(1)->rank() > 2;
    if (swapped) {
      Matrix weight = operands[0];
      operands[0] = {b.SwapLast(node.in(1))};
      operands[1] = {weight.value, !weight.transposed};
    }
    Value* y = Product(b, decision, operands, swapped);
    if (swapped) y = b.SwapLast(y);
    y->producer->name = node.name;
    graph_.MoveOutput(node.out(0), y->producer, 0);
    graph_.RemoveNode(&node);
  }

  Value* Product(Builder& b, const GemmDecision& decision,
                 const Matrix (&operands)[2], bool swapped) {
    const Node& node = *decision.gemm.node;
    std::vector<Value*> in;
    for (size_t i : {0, 1}) {
      int slot = static_cast<int>(swapped ? 1 - i : i);
      Quantised x = Quantise(b, decision, operands[i].value, slot);
      in.insert(in.end(), {x.q, x.scale});
    }
    float alpha = node.Float("alpha", 1);
    float beta = node.Float("beta", 1);
    Value* c = node.in(2);
    bool vector = c && alpha == 1 && beta == 1 && c->shape &&
                  c->rank() == 1 && c->dim(0) == decision.gemm.n;
    if (vector) in.push_back(c);
    Value* y = b.Ours(vector ? "ScaledMatMulBias" : "ScaledMatMul", in,
                      {{"transA", int64_t{operands[0].transposed}},
                       {"transB", int64_t{operands[1].transposed}},
                       {"role", std::string(Name(decision.gemm.role))},
                       {"fqn", decision.fqn},
                       {"recipe", recipe_.name}});
    if (alpha != 1) y = b.Mul(y, b.Scalar(alpha, y));
    if (c && !vector) {
      y = b.Add(y, beta == 1 ? c : b.Mul(c, b.Scalar(beta, y)));
    }
    return y;
  }

  // `slot`: the operand of the Gemm that x is (a view of).
  Quantised Quantise(Builder& b, const GemmDecision& decision, Value* x,
                     int slot) {
    const GemmInfo& gemm = decision.gemm;
    const char* operand = slot == gemm.weight_slot ? "weight"
                          : slot == gemm.grad_slot ? "grad_output"
                                                   : "input";
    const TensorRecipe& how = slot == gemm.weight_slot ? recipe_.weight
                              : slot == gemm.grad_slot ? recipe_.grad_output
                                                       : recipe_.input;
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

std::string SlotsText(const std::vector<ScaleSlot>& slots) {
  nlohmann::json list = nlohmann::json::array();
  for (const ScaleSlot& slot : slots) {
    list.push_back({{"fqn", slot.fqn},
                    {"gemm", slot.gemm},
                    {"operand", slot.operand},
                    {"format", Name(slot.format)}});
  }
  return list.dump();
}

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
    auto rank = [&](int slot) {
      const Value* value = node.in(static_cast<size_t>(slot));
      return value->shape ? value->rank() : -1;
    };
    int weight = gemm.weight_slot;
    DType dtype = gemm.weight ? gemm.weight->dtype : DType::kFloat;
    if (gemm.role == GemmRole::kNone) {
      d.reason = rank(0) == 2 && rank(1) == 2 ? "not a weight" : "attention";
    } else if (weight >= 0 ? rank(weight) != 2
                           : rank(0) != 2 || rank(1) != 2) {
      d.reason = "batched weight";
    } else if (rank(weight == 0 ? 1 : 0) == 1 ||
               (weight == 0 && rank(1) < 0)) {
      d.reason = "not a matrix";
    } else if (dtype != DType::kFloat) {
      d.reason = Concat("computes in ", Name(dtype));
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
