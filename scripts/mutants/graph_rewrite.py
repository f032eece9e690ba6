# SPDX-License-Identifier: Apache-2.0
"""Mutants of graph/rewrite/."""
from mutant import M, ort_newest, python

MUTANTS = (
    M("rewrite: functions that are kept out name no scales",
      "graph/rewrite/rewrite_model.cc",
      "bool wanted = KeepsScales() ? decision.possible : decision.fp8;",
      "bool wanted = decision.fp8;", ort_newest("static_scales")),
    M("rewrite: functions that hold a product stay",
      "graph/rewrite/rewrite_model.cc",
      "if (function != functions.end()) admitted.insert(function->second);",
      "if (function == functions.end()) admitted.insert({});",
      python("functions")),
    M("rewrite: all functions that hold a product go",
      "graph/rewrite/rewrite_model.cc",
      "if (!wanted || mark == metadata.end()) continue;",
      "(void)wanted;\n      if (mark == metadata.end()) continue;", python("functions")),
    M("rewrite: float8e8m0 before opset 24", "graph/rewrite/rewrite_model.cc",
      "if (d.fp8 && d.recipe.e8m0_scales) opset", "if (d.fp8 && d.recipe.e8m0_scales && false) opset",
      python("forward_is_the_same and e8m0")),
    M("artifacts: the seed is any constant",
      "graph/rewrite/rewrite_ort_model.cc", "      if (all) return value;",
      "      if (all || !all) return value;",
      python("ort_rewrite and products")),
    M("artifacts: fused products stay in float",
      "graph/rewrite/rewrite_ort_model.cc",
      "if (d.fp8 && fused.contains(y)) chosen.insert(y);",
      "if (!d.fp8 && fused.contains(y)) chosen.insert(y);",
      python("ort_rewrite and products")),
    M("artifacts: half a folder stays", "training/artifacts/ort_artifacts.cc",
      "    RemoveTree(made);\n", "", python("ort_rewrite and nothing_is_left")),
)
