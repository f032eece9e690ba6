# SPDX-License-Identifier: Apache-2.0
"""More mutants of scripts/mutate.py: what a file may ask for before a step
runs."""
from functools import partial

from mutants import M, Test, base, cli, graph, python, training

bad_input = partial(Test, "test_bad_input")

BUDGETS = graph("Budgets.*")
FLAGS = cli("BudgetFlags.*")
NPZ = training("Npz.*")

MUTANTS = (
    M("budgets: an amount below zero gives back", "onnx_fp8/budgets.h",
      "std::max<int64_t>(amount, 0)", "amount",
      base("Spending.*")),
    M("budgets: iterations are free", "graph/passes/control_flow.cc",
      "  for (int64_t i = 0; i < trips && going; ++i) {\n"
      "    spending_.Take(&Budgets::visits, 1, node);\n",
      "  for (int64_t i = 0; i < trips && going; ++i) {\n", BUDGETS),
    M("budgets: loops that can end are told ahead too",
      "graph/passes/control_flow.cc", "if (going && NeverEndsEarly(*body))",
      "if (going && (NeverEndsEarly(*body) || true))", BUDGETS),
    M("budgets: no loop is told ahead", "graph/passes/control_flow.cc",
      "if (going && NeverEndsEarly(*body))",
      "if (going && NeverEndsEarly(*body) && false)", BUDGETS),
    M("budgets: no scan is told ahead", "graph/passes/control_flow.cc",
      "  RequireVisits(node, *body, length);\n", "", BUDGETS),
    M("budgets: the search for what decides is free",
      "graph/passes/known_values.cc",
      "Take(&Budgets::visits, 1, reader)", "Take(&Budgets::visits, 0, reader)",
      BUDGETS),
    M("budgets: copies of sequences are free", "graph/passes/specialise.cc",
      "if (entry.is_sequence) {", "if (false) {", BUDGETS),
    M("budgets: unknown sizes are free", "graph/passes/specialise.cc",
      "most = std::max(most, NumElements(*in->shape) * each);",
      "most = std::max(most, 0 * each);", BUDGETS),
    M("budgets: constants are free", "graph/passes/specialise.cc",
      "  spending_.Take(&Budgets::constants, bytes, *copy);\n", "", BUDGETS),
    M("budgets: folding is free", "graph/passes/specialise.cc",
      "static_cast<int64_t>(work), *copy", "0, *copy", BUDGETS),
    M("budgets: inference is free", "graph/passes/specialise.cc",
      " + InferenceWork(*copy)", "", BUDGETS),
    M("budgets: everything is folded", "graph/passes/specialise.cc",
      "if (work > kMaxFoldedWork) return false;", "", BUDGETS),
    M("budgets: recurrent steps are free", "graph/passes/unroll_recurrent.cc",
      "static_cast<int64_t>(made), node_",
      "0 * static_cast<int64_t>(made), node_", BUDGETS),
    M("budgets: bodies are free", "graph/expand.cc", "nullptr, {}, spending)",
      "nullptr, {}, spending ? nullptr : spending)", BUDGETS),
    M("budgets: functions are free", "graph/check_functions.cc",
      "Take(&Budgets::nodes, sum->nodes, path_)",
      "Take(&Budgets::nodes, 0, path_)", python("inlined_functions_count")),
    M("budgets: a session has the default ones", "training/training_model.cc",
      "          options.budgets};", "          {}};",
      python("a_raised_budget_lets")),
    M("budgets: a run's folder may hold the flag", "cli/run_folder.cc",
      '"--profile-summary", "--budget"};', '"--profile-summary"};',
      python("a_run_does_not_keep_it")),
    M("budgets: k is a thousand and a bit", "cli/budget_flags.cc",
      "int64_t{1} << (10 * i)", "int64_t{1} << (9 * i)", FLAGS),
    M("npz: members may share bytes", "training/zip.cc",
      "  RequireApart(members_, directory, path_);\n",
      "  if (false) RequireApart(members_, directory, path_);\n", NPZ),
    M("npz: members may share bytes with the directory", "training/zip.cc",
      "last ? directory.offset",
      "last && false ? directory.offset", NPZ),
    M("npz: inflating is free", "training/npy.cc", "if (!stored) {",
      "if (!stored && false) {", NPZ),
    M("npz: views cost too", "training/npy.cc", "if (!stored) {",
      "if (!stored || true) {", NPZ),
    M("json: depth is any", "onnx_fp8/shallow_json.h", "at <= depth", "(at <= depth || true)",
      bad_input("deeply")),
)
