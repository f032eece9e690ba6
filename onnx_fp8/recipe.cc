// SPDX-License-Identifier: Apache-2.0
#include "onnx_fp8/recipe.h"

#include <algorithm>

#include "base/check.h"

namespace onnx_fp8 {
namespace {

constexpr int64_t kMaxHistory = 4096;
constexpr int64_t kMaxMargin = 100;  // the scale stays a float
constexpr int64_t kMaxBlock = 65536;

constexpr RecipePreset kPresets[] = {
    {"off", "no FP8"},
    {"tensorwise", "one scale a tensor, from its own maximum; the fastest"},
    {"rowwise",
     "a scale for each row along the contraction, powers of two; e4m3 for all"},
    {"rowwise_with_gw_hp",
     "rowwise, the gradients of weights in high precision"},
    {"delayed", "one scale a tensor, from the maxima of earlier steps"},
    {"static", "one scale a tensor, given beforehand; it never changes"},
    {"blockwise",
     "1x128 blocks of inputs and gradients, 128x128 of weights, as "
     "DeepSeek-V3"},
    {"mxfp8", "1x32 blocks of all three, scales are powers of two"},
};

OperandRecipe Of(DType dtype, Scaling scaling, Granularity granularity,
                 ScaleRounding rounding = ScaleRounding::kNone) {
  OperandRecipe operand;
  operand.high_precision = false;
  operand.dtype = dtype;
  operand.scaling = scaling;
  operand.granularity = granularity;
  operand.rounding = rounding;
  return operand;
}

// Both uses of each operand the same.
Recipe Uniform(OperandRecipe input, OperandRecipe weight,
               OperandRecipe grad_output) {
  Recipe recipe;
  recipe.operands = {input, weight, grad_output, input, weight, grad_output};
  return recipe;
}

Recipe PerTensor(Scaling scaling) {
  OperandRecipe e4m3 = Of(DType::kE4M3, scaling, Granularity::kTensor);
  OperandRecipe e5m2 = Of(DType::kE5M2, scaling, Granularity::kTensor);
  Recipe recipe = Uniform(e4m3, e4m3, e5m2);
  recipe.fast_accum_forward = true;
  return recipe;
}

Recipe Rowwise() {
  OperandRecipe row = Of(DType::kE4M3, Scaling::kDynamic, Granularity::kRow,
                         ScaleRounding::kPowerOfTwo);
  Recipe recipe = Uniform(row, row, row);
  recipe.fast_accum_forward = true;
  return recipe;
}

// Scales are not rounded, as with DeepSeek-V3 on Hopper and torchao.
// (TransformerEngine rounds them unless told otherwise: blockwise,round:p2.)
Recipe Blockwise() {
  OperandRecipe row = Of(DType::kE4M3, Scaling::kDynamic, Granularity::kBlock);
  OperandRecipe weight = row;
  weight.square = true;
  return Uniform(row, weight, row);
}

Recipe Mxfp8() {
  OperandRecipe mx = Of(DType::kE4M3, Scaling::kDynamic, Granularity::kBlock,
                        ScaleRounding::kPowerOfTwo);
  mx.block = 32;
  return Uniform(mx, mx, mx);
}

struct Operand {
  const char* item;
  const OperandRecipe& recipe;
};

struct Product {
  const char* gemm;
  const char* names[2];
  Operand operands[2];
};

std::vector<Product> Products(const Recipe& r) {
  return {
      {"forward",
       {"input", "weight"},
       {{"i", r[Use::kInput]}, {"w", r[Use::kWeight]}}},
      {"dgrad",
       {"grad_output", "weight"},
       {{"go", r[Use::kGradOutput]}, {"w_gi", r[Use::kWeightForDgrad]}}},
      {"wgrad",
       {"grad_output", "input"},
       {{"go_gw", r[Use::kGradOutputForWgrad]},
        {"i_gw", r[Use::kInputForWgrad]}}},
  };
}

const char* ScalingName(Scaling scaling) {
  return scaling == Scaling::kDelayed ? "delayed" : "static";
}

const char* UnitName(Granularity granularity) {
  return granularity == Granularity::kRow ? "row" : "block";
}

void CheckOperand(const Operand& operand, const std::string& where) {
  const OperandRecipe& o = operand.recipe;
  if (o.high_precision) return;
  const std::string at = Concat(where, " ", operand.item, ": ");
  Check(IsFloat8(o.dtype), at, "expected e4m3 or e5m2, got ", Name(o.dtype));
  bool dynamic = o.scaling == Scaling::kDynamic;
  Check(dynamic || o.granularity == Granularity::kTensor, at,
        "expected dynamic scaling with ", UnitName(o.granularity),
        " scales, got ", ScalingName(o.scaling),
        ": other scales are kept for whole tensors only");
  Check(dynamic || o.rounding == ScaleRounding::kNone, at,
        "expected dynamic scaling where scales are rounded, got ",
        ScalingName(o.scaling));
  bool block = o.granularity == Granularity::kBlock;
  Check(block || o.rounding != ScaleRounding::kFloor, at,
        "expected blocks with _floor, got ",
        o.granularity == Granularity::kRow ? "rows" : "a whole tensor");
  Check(!block || (o.block >= 1 && o.block <= kMaxBlock), at,
        "expected blocks of 1 to ", kMaxBlock, ", got ", o.block);
}

// True if the copy for one GEMM can't serve as the transposed one.
bool NeedsTwoCopies(const OperandRecipe& first, const OperandRecipe& second) {
  bool plain = first.granularity == Granularity::kTensor ||
               (first.granularity == Granularity::kBlock && first.square);
  return !first.high_precision && !second.high_precision && !plain;
}

bool KnownToCuda(const OperandRecipe& o) {
  if (o.granularity != Granularity::kBlock) return true;
  return o.block == 128 || (o.block == 32 && !o.square);
}

}  // namespace

bool Recipe::enabled() const {
  return std::ranges::any_of(Products(*this), [](const Product& product) {
    return !product.operands[0].recipe.high_precision;
  });
}

bool Recipe::Uses(Scaling scaling) const {
  return std::ranges::any_of(operands, [&](const OperandRecipe& o) {
    return !o.high_precision && o.scaling == scaling;
  });
}

std::vector<RecipePreset> RecipePresets() {
  return {std::begin(kPresets), std::end(kPresets)};
}

std::string RecipePresetNames() {
  std::string names;
  for (const RecipePreset& preset : kPresets) {
    names += (names.empty() ? "" : ", ") + std::string(preset.name);
  }
  return names;
}

bool IsRecipePreset(const std::string& name) {
  return std::ranges::any_of(
      kPresets, [&](const RecipePreset& p) { return name == p.name; });
}

// The first four but "off" are torchao's tables (torchao/float8/config.py).
Recipe PresetRecipe(const std::string& name) {
  if (name == "tensorwise") return PerTensor(Scaling::kDynamic);
  if (name == "delayed") return PerTensor(Scaling::kDelayed);
  if (name == "static") return PerTensor(Scaling::kStatic);
  if (name == "rowwise") return Rowwise();
  if (name == "blockwise") return Blockwise();
  if (name == "mxfp8") return Mxfp8();
  if (name == "rowwise_with_gw_hp") {
    Recipe recipe = Rowwise();
    recipe[Use::kWeightForDgrad].granularity = Granularity::kTensor;
    recipe[Use::kInputForWgrad] = recipe[Use::kGradOutputForWgrad] =
        OperandRecipe();
    return recipe;
  }
  return {};
}

void CheckRecipe(const Recipe& recipe, const std::string& where) {
  for (const Product& product : Products(recipe)) {
    const auto& [gemm, names, both] = product;
    for (const Operand& operand : both) CheckOperand(operand, where);
    size_t hp = both[0].recipe.high_precision ? 0 : 1;
    Check(both[0].recipe.high_precision == both[1].recipe.high_precision, where,
          " ", gemm, ": ", names[hp], " (", both[hp].item,
          ") is in high precision, ", names[1 - hp], " (", both[1 - hp].item,
          ") is not; a GEMM needs both or neither");
    for (const Operand& operand : both) {
      Check(!recipe.e8m0_scales || operand.recipe.high_precision ||
                operand.recipe.rounding != ScaleRounding::kNone,
            where, " scales: e8m0 holds powers of two: expected _p2 or _floor ",
            "at ", operand.item, ", got a scale that is not rounded");
    }
  }
  Check(recipe.amax_history >= 1 && recipe.amax_history <= kMaxHistory, where,
        " history: expected 1 to ", kMaxHistory, " steps, got ",
        recipe.amax_history);
  Check(recipe.margin >= -kMaxMargin && recipe.margin <= kMaxMargin, where,
        " margin: expected -", kMaxMargin, " to ", kMaxMargin, ", got ",
        recipe.margin);
}

std::vector<std::string> RecipeNotes(const Recipe& recipe) {
  std::vector<std::string> notes;
  for (const Product& product : Products(recipe)) {
    const OperandRecipe& a = product.operands[0].recipe;
    const OperandRecipe& b = product.operands[1].recipe;
    if (a.high_precision) continue;
    if (a.dtype == DType::kE5M2 && b.dtype == DType::kE5M2) {
      notes.push_back(
          Concat(product.gemm, ": CUDA has no product of e5m2 and e5m2"));
    }
    if (a.square && b.square) {
      notes.push_back(Concat(product.gemm,
                             ": CUDA has no product of two operands in square "
                             "blocks"));
    }
    if (!KnownToCuda(a) || !KnownToCuda(b)) {
      notes.push_back(Concat(product.gemm,
                             ": CUDA knows blocks of 1x128, 128x128 and 1x32"));
    }
  }
  bool two = std::ranges::any_of(kFirstUses, [&](Use use) {
    return NeedsTwoCopies(recipe[use], recipe[SecondUse(use)]);
  });
  if (recipe.transposition == Transposition::kRequantize && !two) {
    notes.push_back(
        "tr:requantize changes nothing: no operand has scales that can't be "
        "transposed");
  }
  return notes;
}

}  // namespace onnx_fp8
