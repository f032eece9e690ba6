# SPDX-License-Identifier: Apache-2.0
"""Mutants of graph/."""
from mutant import M, graph, python

BODY_WEIGHTS = python("body_weights")
NEEDED_WHEN = graph("NeededWhen.*")

MUTANTS = (
    M("trained: Constant nodes are not", "graph/constants.cc",
      "if (data.defined()) held.push_back", "if (false) held.push_back",
      graph("*TrainedParameters*")),
    M("bodies: weights stay in them", "graph/constants.cc",
      "LiftTensors(graph, &node, *body);",
      "if (node.op.empty()) LiftTensors(graph, &node, *body);", BODY_WEIGHTS),
    M("bodies: weights in nested bodies stay", "graph/constants.cc",
      "LiftFromBodies(*body);", "", BODY_WEIGHTS),
    M("needed when: one reader's conditions are all's", "graph/needed_when.cc",
      "if (!added) Intersect(", "if (!added && false) Intersect(",
      NEEDED_WHEN),
    M("needed when: masks of elements choose", "graph/needed_when.cc",
      "NumElements(*flag->shape) == 1", "true", NEEDED_WHEN),
    M("needed when: the wrong operand", "graph/needed_when.cc",
      "Condition taken{node.in(0), i == 1};",
      "Condition taken{node.in(0), i != 1};", NEEDED_WHEN),
    M("cost: causal attention without its diagonal", "graph/flops.cc",
      "short_rows * (short_rows + 1) / 2", "short_rows * short_rows / 2",
      graph("NodeCost.*")),
    M("names: transposed weights are not", "graph/parameter_names.cc",
      "name.transposed = !used_transposed &&",
      "name.transposed = used_transposed &&", graph("*ParameterNames*"),
      python("lost_names")),
    M("names: two parameters of one name", "graph/parameter_names.cc",
      "if (!taken.insert(name.fqn).second) {",
      "if (taken.insert(name.fqn).first->empty()) {",
      graph("*ParameterNames*")),
    M("module path: is the op's own scope", "graph/node_notes.cc",
      "? scopes[scopes.size() - 2] :", "? scopes[scopes.size() - 1] :",
      graph("ModulePath.*")),
    M("views: every way back is walked", "graph/views.cc",
      "} else if (seen.insert(value).second) {", "} else {",
      graph("WeightBehind.*")),
    M("views: the last weight counts", "graph/views.cc",
      "open.insert(open.end(), in.rbegin(), in.rend());",
      "open.insert(open.end(), in.begin(), in.end());",
      graph("WeightBehind.*")),
)
