# SPDX-License-Identifier: Apache-2.0
"""Mutants of providers/ort/."""
from mutant import M, ort, ort_newest

RUNNER = ort("GraphRunner.*")
OPTIONS = ort("EpOptions.*")
CAPABILITY = ort_newest("capability")

MUTANTS = (
    M("runner: a plan serves other shapes", "providers/ort/graph_runner.cc",
      "planned->shapes == shapes &&",
      "planned->shapes.size() == shapes.size() &&", RUNNER),
    M("runner: a plan serves other values", "providers/ort/graph_runner.cc",
      "std::ranges::includes(values, planned->values)",
      "values.size() >= planned->values.size()", RUNNER),
    M("runner: an executor is lent twice", "providers/ort/graph_runner.cc",
      "    planned.idle.pop_back();\n", "", RUNNER),
    M("options: unknown ones do nothing", "providers/ort/ep_options.cc",
      "    Fail(\"expected one of \", kKnown);\n", "", OPTIONS),
    M("options: delayed scales are taken", "providers/ort/ep_options.cc",
      "!recipe.Uses(Scaling::kDelayed) && ", "", OPTIONS),
    M("options: both pools are the session's", "providers/ort/ep_options.cc",
      "options->threads.own = value == \"own\";", "", OPTIONS),
    M("capability: a path may come back", "providers/ort/capability.cc",
      "(runs && !made.ours ? 1 : 0)", "0", CAPABILITY),
    M("capability: sizes may be data", "providers/ort/capability.cc",
      "  if (entry->traits.view) return {1};\n", "", CAPABILITY),
    M("capability: sequences are open", "providers/ort/capability.cc",
      "    while (RefuseOpenSequences()) groups = Divide();\n", "",
      CAPABILITY),
    M("capability: texts are taken", "providers/ort/capability.cc",
      "        if (!tensors) return false;\n",
      "        (void)tensors;\n", CAPABILITY),
    M("library: constants are views of the session's",
      "providers/ort/ort_graph.cc", "large.emplace_back(name, data.Clone());",
      "large.emplace_back(name, data);", CAPABILITY),
    M("recipe: weights stay parameters", "providers/ort/rewrite_products.cc",
      "value->role = Role::kNone;", "value->role = Role::kFrozen;",
      ort_newest("recipe")),
    M("recipe: no notes of modules", "providers/ort/ep.cc",
      "      if (file) CopyNotes(*file, *graph);\n", "",
      ort_newest("filters")),
)
