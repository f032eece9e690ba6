// SPDX-License-Identifier: Apache-2.0
#include "graph/fp8/fp8_rewrite.h"

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <unordered_set>
#include <vector>

#include "base/check.h"
#include "graph/builder.h"
#include "graph/dependence.h"
#include "graph/fp8/gemm_matrices.h"
#include "graph/fp8/scale_update.h"
#include "graph/graph.h"
#include "graph/op_facts.h"
#include "onnx_fp8/float8.h"
#include "onnx_fp8/recipe_text.h"

namespace onnx_fp8 {
namespace {

// A quantized copy of a matrix of R rows and C columns.
struct Quantized {
  Value* q = nullptr;
  Value* scale = nullptr;
  // Size of the blocks of the matrix that share a scale; 0: the whole axis.
  int64_t block_rows = 0, block_columns = 0;

  bool one_scale() const { return block_rows == 0 && block_columns == 0; }
};

constexpr size_t kNone = static_cast<size_t>(-1);

// The blocks of a stored matrix that have one scale each. The GEMM sums over
// its columns, or over its rows.
Quantized BlocksOf(const OperandRecipe& how, bool along_columns) {
  Quantized blocks;
  if (how.granularity == Granularity::kTensor) return blocks;
  int64_t along = how.granularity == Granularity::kRow ? 0 : how.block;
  int64_t across = how.square ? how.block : 1;
  blocks.block_rows = along_columns ? across : along;
  blocks.block_columns = along_columns ? along : across;
  return blocks;
}

int64_t PowerOfTwo(ScaleRounding rounding) {
  switch (rounding) {
    case ScaleRounding::kPowerOfTwo:
      return 1;
    case ScaleRounding::kFloor:
      return 2;
    default:
      return 0;
  }
}

// The quantized copies in a graph. Readers that want the same copy of the same
// value share one.
class OperandCopies {
 public:
  // `names`: the names of all operands. `known`: as in Fp8Rewrite. Slots,
  // amaxes and labels go to `plan`.
  OperandCopies(Graph& graph, const Fp8Spec& spec, Fp8Plan* plan,
                const ScaleNames& names, const std::vector<ScaleSlot>* known)
      : graph_(graph),
        scales_(spec.scales),
        plan_(plan),
        names_(names),
        laid_out_(known) {
    own_frozen_scales_ = spec.own_frozen_scales;
    if (own_frozen_scales_) frozen_ = FrozenAlone(graph);
    if (!known) return;
    plan->slots = *known;
    for (size_t i = 0; i < known->size(); ++i) {
      plan->slots[i].amax = nullptr;
      position_[plan->slots[i].Key()] = i;
    }
  }

  // The copy of x, which is (a view of) the GEMM's input `slot`. The GEMM sums
  // over x's last axis (`along_columns`) or over its rows.
  Quantized Get(Builder& b, const GemmDecision& decision, Value* x, int slot,
                bool along_columns) {
    const OperandRecipe& how = OperandOf(decision.recipe, decision.gemm, slot);
    Quantized blocks = BlocksOf(how, along_columns);
    Key key = {x,
               how.dtype,
               how.scaling,
               how.rounding,
               blocks.block_rows,
               blocks.block_columns};
    auto it = copies_.find(key);
    if (it != copies_.end()) return it->second;
    Quantized made = Make(b, decision, x, slot, blocks);
    copies_[key] = made;
    first_.try_emplace(x, made);
    return made;
  }

 private:
  using Key =
      std::tuple<Value*, DType, Scaling, ScaleRounding, int64_t, int64_t>;

  Quantized Make(Builder& b, const GemmDecision& decision, Value* x, int slot,
                 Quantized copy) {
    const OperandRecipe& how = OperandOf(decision.recipe, decision.gemm, slot);
    const char* operand = OperandName(decision.gemm, slot);
    bool kept = how.scaling == Scaling::kStatic ||
                (how.scaling == Scaling::kDelayed && !HasOwnScale(x));
    size_t position = kept ? Position(decision, slot) : kNone;
    Attributes attributes = {{"to", static_cast<int64_t>(how.dtype)},
                             {"q_max", Float8Max(how.dtype)}};
    std::vector<Value*> made;
    if (position != kNone) {
      Value* index = b.Int(static_cast<int64_t>(position));
      Value* scale = b.Op("Gather", {AddScales(graph_, plan_), index},
                          {{"axis", int64_t{0}}});
      made = b.Ops("QuantizeWith", {x, scale}, 3, attributes, kDomain);
    } else if (copy.one_scale() && how.rounding == ScaleRounding::kNone) {
      made = b.Ops("QuantizeTensor", {x}, 3, attributes, kDomain);
    } else {
      made = MakeFromBlocks(b, decision.recipe, how,
                            Source(b, decision, x, how), copy);
    }
    copy.q = made[0];
    copy.scale = made[1];
    if (position != kNone && how.scaling == Scaling::kDelayed) {
      plan_->slots[position].amax = made[2];
    } else {
      plan_->amaxes.push_back(made[2]);
      ScaleSlot tensor{decision.fqn, Name(decision.gemm.role), operand};
      if (position != kNone) tensor = plan_->slots[position];
      plan_->labels.push_back(tensor.Label());
    }
    copy.q->producer->attributes["fqn"] = decision.fqn;
    copy.q->producer->attributes["operand"] = std::string(operand);
    return copy;
  }

  // Whether x, or the matrix that it turns, is frozen and keeps its own scale.
  bool HasOwnScale(const Value* x) const {
    const auto is_frozen = [this](const Value* value) {
      return value->role == Role::kFrozen || frozen_.contains(value);
    };
    if (!own_frozen_scales_) return false;
    const Node* turn = x->producer;
    return is_frozen(x) || (turn && turn->Is("Transpose") && turn->in(0) &&
                            is_frozen(turn->in(0)));
  }

  std::vector<Value*> MakeFromBlocks(Builder& b, const Recipe& recipe,
                                     const OperandRecipe& how, Value* x,
                                     const Quantized& copy) {
    DType scale = recipe.e8m0_scales ? DType::kE8M0 : DType::kFloat;
    return b.Ops("QuantizeBlock", {x}, 3,
                 {{"to", static_cast<int64_t>(how.dtype)},
                  {"q_max", Float8Max(how.dtype)},
                  {"block_rows", copy.block_rows},
                  {"block_columns", copy.block_columns},
                  {"pow2", PowerOfTwo(how.rounding)},
                  {"scale_to", static_cast<int64_t>(scale)}},
                 kDomain);
  }

  // The value from which a copy is quantized: x, or with kRequantize in the
  // backward the decoded first copy of x.
  Value* Source(Builder& b, const GemmDecision& decision, Value* x,
                const OperandRecipe& how) {
    auto first = first_.find(x);
    if (decision.recipe.transposition != Transposition::kRequantize ||
        decision.gemm.role == GemmRole::kForward ||
        how.granularity == Granularity::kTensor || first == first_.end()) {
      return x;
    }
    const Quantized& copy = first->second;
    return b.Ours("DequantizeBlock", {copy.q, copy.scale},
                  {{"block_rows", copy.block_rows},
                   {"block_columns", copy.block_columns}});
  }

  // The position of the operand's slot. Adds a slot unless all are laid out
  // already.
  size_t Position(const GemmDecision& decision, int slot) {
    const OperandRecipe& how = OperandOf(decision.recipe, decision.gemm, slot);
    std::vector<ScaleSlot> possible;
    for (const ScaleName& name : *names_.at({decision.gemm.node, slot})) {
      possible.push_back({name.fqn, name.gemm, name.operand, how.dtype,
                          name.occurrence, how.scaling});
    }
    for (const ScaleSlot& one : possible) {
      auto it = position_.find(one.Key());
      if (laid_out_) {
        if (it == position_.end()) continue;
        if (plan_->slots[it->second].scaling == how.scaling) return it->second;
      } else if (it == position_.end()) {
        return AddSlot(one, possible);
      }
    }
    // A session may hold copies of one of the file's matrices. All copies have
    // the matrix's names, so they share its static scale.
    if (how.scaling == Scaling::kStatic && !laid_out_) {
      return position_.at(possible.front().Key());
    }
    return kNone;
  }

  size_t AddSlot(const ScaleSlot& slot,
                 const std::vector<ScaleSlot>& possible) {
    plan_->slots.push_back(slot);
    if (slot.scaling == Scaling::kStatic) {
      plan_->slots.back().scale = StaticScale(possible);
    }
    return position_[slot.Key()] = plan_->slots.size() - 1;
  }

  float StaticScale(const std::vector<ScaleSlot>& possible) const {
    Check(!scales_.source.empty(), "[", graph_.file,
          "] expected `scales` for static scaling, got none; "
          "`calibrate()` makes a file of them, a run with delayed scaling has "
          "them too");
    for (const ScaleSlot& slot : possible) {
      auto it = scales_.by_key.find(slot.Key());
      if (it != scales_.by_key.end()) return it->second;
    }
    Fail("[", scales_.source, "] expected a scale for ", possible.front().Key(),
         " of ", graph_.file, ", got ", scales_.by_key.size(),
         " others; is it of another model or filter?");
  }

  Graph& graph_;
  const StaticScales& scales_;
  Fp8Plan* plan_;
  const ScaleNames& names_;
  bool laid_out_;
  bool own_frozen_scales_ = false;
  std::unordered_set<const Value*> frozen_;  // if their scales are their own
  std::map<std::string, size_t> position_;
  std::map<Key, Quantized> copies_;
  std::map<Value*, Quantized> first_;  // first copy of each value
};

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
        copies_(graph, spec, plan, names_, known) {}

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
