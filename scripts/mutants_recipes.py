# SPDX-License-Identifier: Apache-2.0
"""More mutants of scripts/mutate.py: recipes, and which layers they are for."""
from mutants import M, base, graph

AUTO = graph("AutoFilter.*")
FILTER = graph("GemmDecision.*")
RECIPE = base("Recipe.*")

MUTANTS = (
    M("filter: it does not see parameters", "graph/passes/gemm_decision.cc",
      "add(fqn);", "", FILTER),
    M("filter: it does not see modules of parameters",
      "graph/passes/gemm_decision.cc", "add(fqn.substr(0, dot));", "", FILTER),
    M("filter: it does not see modules of nodes",
      "graph/passes/gemm_decision.cc", "add(d.module);", "", FILTER),
    M("filter: the last pattern wins", "graph/passes/gemm_decision.cc",
      "first = std::min(first, i);", "first = i;", FILTER),
    M("auto filter: the weight is never on the left",
      "graph/passes/gemm_decision.cc", "if (forward.weight_slot == 0) return",
      "if (false) return", AUTO),
    M("filter: what is kept out has a recipe",
      "graph/passes/gemm_decision.cc", "d->recipe = Recipe();", "", FILTER),
    M("auto filter: copies for two uses are one where they differ",
      "graph/passes/auto_filter.cc",
      "return shared ? std::min(copies, 1) : copies;",
      "return shared ? copies : std::min(copies, 1);", AUTO),
    M("auto filter: M does not count", "graph/passes/auto_filter.cc",
      "if (!rows || m < 0) return ByThresholds",
      "if (!rows || m > 0) return ByThresholds", AUTO),
    M("speed grid: sizes count as they are", "onnx_fp8/speed_table.cc",
      "return std::log2(static_cast<double>(x));",
      "return static_cast<double>(x);", base("Speed*")),
    M("recipe: a second use does not follow", "onnx_fp8/recipe_text.cc",
      "if (follows) recipe_", "if (follows && false) recipe_", RECIPE),
    M("recipe: a second use always follows", "onnx_fp8/recipe_text.cc",
      "if (follows) recipe_", "if (follows || k.second) recipe_", RECIPE),
    M("recipe: rounded delayed scales pass", "onnx_fp8/recipe.cc",
      "Check(dynamic || o.rounding == ScaleRounding::kNone, at,",
      "Check(true, at,", RECIPE),
    M("filter: patterns that match nothing pass",
      "graph/passes/gemm_decision.cc", "Check(matched[i],",
      "Check(matched[i] || true,", FILTER),
)
