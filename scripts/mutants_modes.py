# SPDX-License-Identifier: Apache-2.0
"""More mutants of scripts/mutate.py: branches, values that decide them, and the
mode of BatchNormalization."""
from mutants import M, graph, python, training

NEEDED = graph("NeededWhen.*")
BRANCHES = python("branches")
VALUES = graph("SpecialiseValues.*")
STATISTICS = graph("BindRunningStatistics.*")
MODE = graph("SetBatchNormMode.*")

MUTANTS = (
    M("needed when: one reader's conditions are all's", "graph/needed_when.cc",
      "if (!added) Intersect(&it->second, when);", "", NEEDED),
    M("needed when: masks of elements choose", "graph/needed_when.cc",
      "NumElements(*flag->shape) == 1", "true", NEEDED),
    M("needed when: the wrong operand", "graph/needed_when.cc",
      "Condition taken{node.in(0), i == 1};",
      "Condition taken{node.in(0), i != 1};", NEEDED),
    M("autodiff: what leaves a branch is not masked", "training/autodiff.cc",
      "if (!left.empty()) dx", "if (false) dx", BRANCHES),
    M("executor: branches that are not taken run", "providers/executor.cc",
      "if (IsNeeded(step)) RunStep(step);", "RunStep(step);", BRANCHES),
    M("fp8: amaxes of a branch that is not taken count",
      "graph/passes/scale_update.cc", "if (needed.empty()) return;", "return;",
      BRANCHES),
    M("batch norm: statistics of a branch that is not taken move",
      "graph/passes/running_statistics.cc",
      "Choose(b, ConditionsOf(needed, node), next, old)", "next", BRANCHES),
    M("batch norm: statistics move in a skipped step",
      "graph/passes/running_statistics.cc", "{ok, next, state}",
      "{ok, next, next}", STATISTICS),
    M("batch norm: the variance of the population",
      "graph/passes/running_statistics.cc", "if (n < 2) return next;",
      "return next;", STATISTICS),
    M("batch norm: a second run starts anew",
      "graph/passes/running_statistics.cc",
      "graph.SetInput(node, i + 2, old);", "", STATISTICS),
    M("batch norm: as exported is not said", "graph/passes/batch_norm_mode.cc",
      "fixed.push_back(LayerName(*norm.node));", "", MODE),
    M("values: taken where data decide", "graph/passes/control_flow.cc",
      "if (!SourcesOf(node, condition).data) {", "{", VALUES),
    M("values: all that are given are taken", "graph/passes/specialise.cc",
      "  InputValues needed;\n", "  InputValues needed = values;\n", VALUES),
    M("values: of any rank", "graph/passes/known_values.cc",
      "shape.size() <= 1", "shape.size() <= 9", VALUES),
    M("values: a plan is for all of them", "training/session.cc",
      "std::ranges::includes(wanted.values, values)", "true",
      training("Session.APlanIsForTheValuesThatDecidedIt")),
)
