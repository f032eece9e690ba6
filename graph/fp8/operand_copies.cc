// SPDX-License-Identifier: Apache-2.0
#include "graph/fp8/operand_copies.h"

#include "base/check.h"
#include "graph/fp8/scale_update.h"
#include "onnx_fp8/float8.h"

namespace onnx_fp8 {
namespace {

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

}  // namespace

OperandCopies::OperandCopies(Graph& graph, const StaticScales& scales,
                             Fp8Plan* plan, const ScaleNames& names,
                             const std::vector<ScaleSlot>* known)
    : graph_(graph),
      scales_(scales),
      plan_(plan),
      names_(names),
      laid_out_(known) {
  if (!known) return;
  plan->slots = *known;
  for (size_t i = 0; i < known->size(); ++i) {
    plan->slots[i].amax = nullptr;
    position_[plan->slots[i].Key()] = i;
  }
}

Quantized OperandCopies::Get(Builder& b, const GemmDecision& decision, Value* x,
                             int slot, bool along_columns) {
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

Quantized OperandCopies::Make(Builder& b, const GemmDecision& decision,
                              Value* x, int slot, Quantized copy) {
  const OperandRecipe& how = OperandOf(decision.recipe, decision.gemm, slot);
  const char* operand = OperandName(decision.gemm, slot);
  bool kept = how.scaling != Scaling::kDynamic;
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
    made = MakeFromBlocks(b, decision.recipe, how, Source(b, decision, x, how),
                          copy);
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

std::vector<Value*> OperandCopies::MakeFromBlocks(Builder& b,
                                                  const Recipe& recipe,
                                                  const OperandRecipe& how,
                                                  Value* x,
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
Value* OperandCopies::Source(Builder& b, const GemmDecision& decision, Value* x,
                             const OperandRecipe& how) {
  auto first = first_.find(x);
  if (decision.recipe.transposition != Transposition::kRequantize ||
      decision.gemm.role == GemmRole::kForward ||
      how.granularity == Granularity::kTensor || first == first_.end()) {
    return x;
  }
  const Quantized& copy = first->second;
  return b.Ours(
      "DequantizeBlock", {copy.q, copy.scale},
      {{"block_rows", copy.block_rows}, {"block_columns", copy.block_columns}});
}

// The position of the operand's slot. Adds a slot unless all are laid out
// already.
size_t OperandCopies::Position(const GemmDecision& decision, int slot) {
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

size_t OperandCopies::AddSlot(const ScaleSlot& slot,
                              const std::vector<ScaleSlot>& possible) {
  plan_->slots.push_back(slot);
  if (slot.scaling == Scaling::kStatic) {
    plan_->slots.back().scale = StaticScale(possible);
  }
  return position_[slot.Key()] = plan_->slots.size() - 1;
}

float OperandCopies::StaticScale(const std::vector<ScaleSlot>& possible) const {
  Check(
      !scales_.source.empty(), "[", graph_.file,
      "] expected `scales` for static scaling, got none; "
      "`calibrate()` makes a file of them, a run with delayed scaling has them "
      "too");
  for (const ScaleSlot& slot : possible) {
    auto it = scales_.by_key.find(slot.Key());
    if (it != scales_.by_key.end()) return it->second;
  }
  Fail("[", scales_.source, "] expected a scale for ", possible.front().Key(),
       " of ", graph_.file, ", got ", scales_.by_key.size(),
       " others; is it of another model or filter?");
}

}  // namespace onnx_fp8
