// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/fp8_rewrite.h"

#include <nlohmann/json.hpp>

#include "graph/builder.h"
#include "graph/views.h"
#include "onnx_fp8/check.h"
#include "onnx_fp8/float8.h"
#include "onnx_fp8/recipe_text.h"

namespace onnx_fp8 {
namespace {

// A quantised value: outputs of Quantize*, shared by all readers.
struct Quantised {
  Value* q;
  Value* scale;
};

class Rewriter {
 public:
  // `recipe`: says how delayed scales move, in all layers.
  Rewriter(Graph& graph, const Recipe& recipe, Fp8Plan* plan,
           const std::vector<ScaleSlot>* known)
      : graph_(graph), recipe_(recipe), plan_(plan), laid_out_(known) {
    if (!known) return;
    plan->slots = *known;
    for (size_t i = 0; i < known->size(); ++i) {
      plan->slots[i].amax = nullptr;
      position_[plan->slots[i].Key()] = i;
    }
  }

  void Run() {
    for (GemmDecision& decision : plan_->decisions) {
      if (decision.fp8) Rewrite(decision);
    }
    if (plan_->slots.empty()) return;
    if (plan_->scale) {
      plan_->scale->data = Tensor::Zeros(DType::kFloat, {Size(plan_->slots)});
      plan_->scale->shape = plan_->scale->data.shape();
    }
    AddScaleState(graph_, recipe_, plan_);
    LabelSlots();
  }

 private:
  static int64_t Size(const std::vector<ScaleSlot>& slots) {
    return static_cast<int64_t>(slots.size());
  }

  void LabelSlots() {
    std::vector<std::string> labels;
    for (const ScaleSlot& slot : plan_->slots) {
      labels.push_back(Concat(slot.fqn, " ", slot.gemm, " ", slot.operand));
    }
    plan_->labels.insert(plan_->labels.begin(), labels.begin(), labels.end());
  }

  void Rewrite(const GemmDecision& decision) {
    const GemmInfo& gemm = decision.gemm;
    Node& node = *gemm.node;
    Builder b(graph_, node.out(0)->name + ".", &node);
    b.set_metadata(node.metadata);
    Matrix operands[2] = {PeelTranspose(node.in(0)), PeelTranspose(node.in(1))};
    operands[0].transposed ^= node.Int("transA", 0) != 0;
    operands[1].transposed ^= node.Int("transB", 0) != 0;
    // W @ x with leading axes on x: (x^T @ W^T)^T.
    bool swapped =
        gemm.weight_slot == 0 && node.in(1)->shape && node.in(1)->rank() > 2;
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
      int input = static_cast<int>(swapped ? 1 - i : i);
      Quantised x = Quantise(b, decision, operands[i].value, input);
      in.insert(in.end(), {x.q, x.scale});
    }
    float alpha = node.Float("alpha", 1);
    float beta = node.Float("beta", 1);
    Value* c = node.in(2);
    bool vector = c && alpha == 1 && beta == 1 && c->shape && c->rank() == 1 &&
                  c->dim(0) == decision.gemm.n;
    if (vector) in.push_back(c);
    Value* y = b.Ours(vector ? "ScaledMatMulBias" : "ScaledMatMul", in,
                      {{"transA", int64_t{operands[0].transposed}},
                       {"transB", int64_t{operands[1].transposed}},
                       {"role", std::string(Name(decision.gemm.role))},
                       {"fqn", decision.fqn},
                       {"recipe", RecipeText(decision.recipe)}});
    if (alpha != 1) y = b.Mul(y, b.Scalar(alpha, y));
    if (c && !vector) {
      y = b.Add(y, beta == 1 ? c : b.Mul(c, b.Scalar(beta, y)));
    }
    return y;
  }

  // `input`: the Gemm's input slot that x is (a view of).
  Quantised Quantise(Builder& b, const GemmDecision& decision, Value* x,
                     int input) {
    const GemmInfo& gemm = decision.gemm;
    const char* operand = input == gemm.weight_slot ? "weight"
                          : input == gemm.grad_slot ? "grad_output"
                                                    : "input";
    const OperandRecipe& how = OperandOf(decision.recipe, gemm, input);
    auto [it, added] = copies_.try_emplace({x, how});
    if (!added) return it->second;
    Attributes attributes = {{"to", static_cast<int64_t>(how.dtype)},
                             {"q_max", Float8Max(how.dtype)}};
    ScaleSlot slot{decision.fqn, Name(gemm.role), operand, how.dtype};
    slot.occurrence = occurrences_[slot.Key()]++;
    size_t position = how.scaling == Scaling::kDelayed ? Position(slot) : kNone;
    std::vector<Value*> made;
    if (position == kNone) {
      made = b.Ops("QuantizeTensor", {x}, 3, std::move(attributes), kDomain);
      plan_->amaxes.push_back(made[2]);
      plan_->labels.push_back(
          Concat(slot.fqn, " ", slot.gemm, " ", slot.operand));
    } else {
      Value* index = b.Int(static_cast<int64_t>(position));
      Value* scale =
          b.Op("Gather", {ScaleState(), index}, {{"axis", int64_t{0}}});
      made =
          b.Ops("QuantizeWith", {x, scale}, 3, std::move(attributes), kDomain);
      plan_->slots[position].amax = made[2];
    }
    made[0]->producer->attributes["fqn"] = decision.fqn;
    made[0]->producer->attributes["operand"] = std::string(operand);
    return it->second = {made[0], made[1]};
  }

  static constexpr size_t kNone = static_cast<size_t>(-1);

  // Where the slot lies; a new one unless they are laid out already.
  size_t Position(const ScaleSlot& slot) {
    auto it = position_.find(slot.Key());
    if (it != position_.end()) return it->second;
    if (laid_out_) return kNone;
    plan_->slots.push_back(slot);
    return position_[slot.Key()] = plan_->slots.size() - 1;
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

  Graph& graph_;
  const Recipe& recipe_;
  Fp8Plan* plan_;
  bool laid_out_;
  std::map<std::string, size_t> position_;
  std::map<std::string, int64_t> occurrences_;
  std::map<std::pair<Value*, OperandRecipe>, Quantised> copies_;
};

// Errors: what there are no ops for.
void RequireOps(const GemmDecision& d, const std::string& file) {
  for (int slot : {0, 1}) {
    const OperandRecipe& o = OperandOf(d.recipe, d.gemm, slot);
    bool known = o.granularity == Granularity::kTensor &&
                 o.scaling != Scaling::kStatic &&
                 o.rounding == ScaleRounding::kNone &&
                 !(o.scaling == Scaling::kDelayed && d.recipe.per_micro_batch);
    Check(known, "[", file,
          "] expected dynamic or delayed scales of whole tensors that are not "
          "rounded and move once per step, got the recipe ",
          RecipeText(d.recipe));
  }
}

}  // namespace

std::string SlotsText(const std::vector<ScaleSlot>& slots) {
  nlohmann::json list = nlohmann::json::array();
  for (const ScaleSlot& slot : slots) {
    list.push_back({{"fqn", slot.fqn},
                    {"gemm", slot.gemm},
                    {"operand", slot.operand},
                    {"format", Name(slot.format)},
                    {"occurrence", slot.occurrence}});
  }
  return list.dump();
}

std::vector<ScaleSlot> ParseSlots(const std::string& text) {
  std::vector<ScaleSlot> slots;
  try {
    for (const auto& entry : nlohmann::json::parse(text)) {
      slots.push_back({entry.at("fqn"), entry.at("gemm"), entry.at("operand"),
                       ParseDType(entry.at("format").get<std::string>()),
                       entry.at("occurrence")});
    }
  } catch (const nlohmann::json::exception& error) {
    Fail("[scale slots] expected a JSON list of slots, got another text");
  }
  return slots;
}

std::string ScaleSlot::Key() const {
  return Concat(fqn, "/", gemm, "/", operand, "/", Name(format), "#",
                occurrence);
}

void AddScaleState(Graph& graph, const Recipe& recipe, Fp8Plan* plan) {
  auto n = static_cast<int64_t>(plan->slots.size());
  auto add = [&](const char* name, const Shape& shape) {
    Value* value = graph.AddInitializer(graph.FreshName(name),
                                        Tensor::Zeros(DType::kFloat, shape));
    value->role = Role::kState;
    return value;
  };
  if (!plan->scale) plan->scale = add("fp8.scale", {n});
  plan->history = add("fp8.amax_history", {recipe.amax_history, n});
  std::vector<float> q_max;
  for (const ScaleSlot& slot : plan->slots) {
    q_max.push_back(Float8Max(slot.format));
  }
  plan->q_max = graph.AddInitializer(graph.FreshName("fp8.q_max"),
                                     Tensor::From<float>({n}, q_max));
}

Fp8Plan Fp8Rewrite(Graph& graph, const Fp8Spec& spec, Value* seed,
                   const std::vector<std::pair<Value*, Value*>>& gradients,
                   const std::vector<ScaleSlot>* known) {
  Fp8Plan plan;
  plan.decisions = DecideGemms(ClassifyGemms(graph, seed, gradients), spec);
  for (const GemmDecision& d : plan.decisions) {
    if (d.fp8) RequireOps(d, graph.file);
  }
  Rewriter(graph, spec.recipe, &plan, known).Run();
  return plan;
}

}  // namespace onnx_fp8
