# SPDX-License-Identifier: Apache-2.0
"""Mutants of onnx_fp8/."""
from mutant import M, bad_input, providers, python, training, training_slow, vocabulary

FLOAT8 = vocabulary("*Float8*:*Float16*:*E8M0*"), providers("*Float8*:*Float16*")
LINEAR_SQNR = training("*LinearSqnr.*")
EXTERNAL_DATA = python("external_data")

MUTANTS = (
    M("budgets: an amount below zero gives back", "onnx_fp8/budgets.h",
      "std::max<int64_t>(amount, 0)", "amount", vocabulary("Spending.*")),
    M("float8: ties go up", "onnx_fp8/float8.cc",
      "bits += ((1u << (kDrop - 1)) - 1) + ((bits >> kDrop) & 1);",
      "bits += 1u << (kDrop - 1);", *FLOAT8),
    M("float8: e4m3 overflows to NaN", "onnx_fp8/float8.cc",
      "if (magnitude >= kE4M3Max) return {static_cast<uint8_t>(sign | 0x7E)};",
      "if (magnitude >= kE4M3Max) return {static_cast<uint8_t>(sign | 0x7F)};",
      *FLOAT8),
    M("float8: e5m2 overflows to infinity", "onnx_fp8/float8.cc",
      "if (magnitude >= kE5M2Max) return {static_cast<uint8_t>(sign | 0x7B)};",
      "if (magnitude >= kE5M2Max) return {static_cast<uint8_t>(sign | 0x7C)};",
      *FLOAT8),
    M("float8: subnormals decode to half", "onnx_fp8/float8.cc",
      "std::ldexp(static_cast<float>(fraction), 1 - kBias - kMantissa)",
      "std::ldexp(static_cast<float>(fraction), -kBias - kMantissa)", *FLOAT8),
    M("sqnr: a feed-forward's weights in blocks of rows", "onnx_fp8/recipe.cc",
      "weight.square = true;", "", training_slow("*FeedForwardSqnr*")),
    M("recipe: rounded delayed scales pass", "onnx_fp8/recipe.cc",
      "Check(dynamic || o.rounding == ScaleRounding::kNone, at,",
      "Check(true, at,", vocabulary("Recipe.*")),
    M("sqnr: gradients are e4m3", "onnx_fp8/recipe.cc",
      "Of(DType::kE5M2, scaling, Granularity::kTensor)",
      "Of(DType::kE4M3, scaling, Granularity::kTensor)", LINEAR_SQNR),
    M("sqnr: MX blocks are 128 long", "onnx_fp8/recipe.cc", "mx.block = 32;",
      "mx.block = 128;", training("*OutlierSqnr.*")),
    M("sqnr: weights in blocks of rows", "onnx_fp8/recipe.cc",
      "weight.square = true;", "", LINEAR_SQNR),
    M("sqnr: no gradient of weights in high precision", "onnx_fp8/recipe.cc",
      "recipe[Use::kInputForWgrad] = recipe[Use::kGradOutputForWgrad] =\n"
      "        OperandRecipe();", "", LINEAR_SQNR),
    M("recipe: a second use does not follow", "onnx_fp8/recipe_text.cc",
      "if (base[use] == base[second]) recipe_", "if (false) recipe_",
      vocabulary("Recipe.*")),
    M("recipe: a second use always follows", "onnx_fp8/recipe_text.cc",
      "if (base[use] == base[second]) recipe_", "recipe_",
      vocabulary("Recipe.*")),
    M("speed grid: sizes count as they are", "onnx_fp8/speed_table.cc",
      "return std::log2(static_cast<double>(x));",
      "return static_cast<double>(x);", vocabulary("Speed*")),
    M("speed table: layers that gain nothing are read",
      "onnx_fp8/speed_table.cc", 'Check(value > 0, "expected ", what,',
      'Check(value >= 0, "expected ", what,', vocabulary("SpeedTable.*"),
      bad_input("speedups_of_nothing")),
    M("speed table: speed-ups are written as speeds",
      "onnx_fp8/speed_table.cc", "bool layers = table.of_layers();",
      "bool layers = false;", vocabulary("SpeedTable.*")),
    M("speed table: h100 was measured here", "onnx_fp8/speed_table.h",
      'return source != "h100";', "return true;", vocabulary("SpeedTable.*")),
    M("tensor: zeros are written", "onnx_fp8/tensor.cc",
      "if (data == MAP_FAILED) FailOutOfMemory(bytes);",
      "if (data == MAP_FAILED) FailOutOfMemory(bytes);\n"
      "  for (size_t i = 0; i < bytes; i += 4096) {\n"
      "    static_cast<volatile char*>(data)[i] = 0;\n"
      "  }", EXTERNAL_DATA),
)
