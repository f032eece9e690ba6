# SPDX-License-Identifier: Apache-2.0
"""More mutants of scripts/mutate.py: steps that compute well, but lose more or
less than their recipe says."""
from mutants import M, training

LINEAR = training("*LinearSqnr.*")
OUTLIER = training("*OutlierSqnr.*")

MUTANTS = (
    M("sqnr: nothing is requantised", "graph/passes/operand_copies.cc",
      "if (decision.recipe.transposition != Transposition::kRequantize ||",
      "if (decision.recipe.transposition != Transposition::kHighPrecision ||",
      LINEAR),
    M("sqnr: forward's copies serve the backward",
      "graph/passes/operand_copies.cc",
      "auto it = copies_.find(key);",
      "auto it = std::ranges::find_if(copies_, [&](const auto& entry) {\n"
      "    return std::get<0>(entry.first) == x;\n  });", OUTLIER),
    M("sqnr: rows lie across the sum", "graph/passes/fp8_rewrite.cc",
      "bool along_columns = operands[i].transposed == (i == 1);",
      "bool along_columns = operands[i].transposed == (i == 0);", OUTLIER),
    M("sqnr: rows are whole tensors", "graph/passes/operand_copies.cc",
      "blocks.block_rows = along_columns ? across : along;",
      "blocks.block_rows = along;", OUTLIER),
    M("sqnr: MX's FLOOR rounds up", "graph/passes/operand_copies.cc",
      "return 2;", "return 1;", LINEAR),
    M("sqnr: gradients are e4m3", "onnx_fp8/recipe.cc",
      "Of(DType::kE5M2, scaling, Granularity::kTensor)",
      "Of(DType::kE4M3, scaling, Granularity::kTensor)", LINEAR),
    M("sqnr: MX blocks are 128 long", "onnx_fp8/recipe.cc",
      "mx.block = 32;", "mx.block = 128;", OUTLIER),
    M("sqnr: weights in blocks of rows", "onnx_fp8/recipe.cc",
      "weight.square = true;", "", LINEAR),
    M("sqnr: no gradient of weights in high precision", "onnx_fp8/recipe.cc",
      "recipe.input_for_wgrad = recipe.grad_output_for_wgrad = OperandRecipe();",
      "", LINEAR),
    M("sqnr: delayed scales are this batch's",
      "graph/passes/operand_copies.cc",
      "size_t position = kept ? Position(tensor) : kNone;",
      "size_t position = tensor.scaling == Scaling::kStatic ? Position(tensor)\n"
      "                                                     : kNone;", OUTLIER),
)
