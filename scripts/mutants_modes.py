# SPDX-License-Identifier: Apache-2.0
"""More mutants of scripts/mutate.py: branches, weights in them, values that decide
them, and the mode of BatchNormalization."""
from mutants import M, graph, python, training

NEEDED = graph("NeededWhen.*")
BRANCHES = python("branches")
WEIGHTS = python("body_weights")
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
    M("bodies: weights stay in them", "graph/constants.cc",
      "LiftTensors(graph, &node, **body);", "", WEIGHTS),
    M("bodies: those of bodies in bodies stay", "graph/constants.cc",
      "LiftFromBodies(**body);", "", WEIGHTS),
    M("bodies: weights of one name are one", "graph/body_names.cc",
      "if (name->empty() || count_[*name] == 1) return;", "return;", WEIGHTS),
    M("bodies: readers keep the old name", "graph/body_names.cc",
      "if (it != renames.end()) *name = it->second;", "", WEIGHTS),
    M("bodies: export does not look into them", "graph/export_weights.cc",
      "FindAll(weights, attribute.mutable_g(), held);", "", WEIGHTS),
    M("bodies: a weight that an If chooses is none",
      "graph/passes/trained_parameters.cc",
      "outputs[i] = first ? kind : Join(node, outputs[i], kind);", "",
      WEIGHTS),
    M("bodies: a choice by data is no use",
      "graph/passes/trained_parameters.cc",
      "kind.tag == Kind::kTravelling && in[0].tag == Kind::kLive", "false",
      WEIGHTS),
    M("bodies: of branches not taken nothing is said",
      "graph/passes/specialise.cc",
      "report->unread.push_back(value->name);", "", WEIGHTS),
)
