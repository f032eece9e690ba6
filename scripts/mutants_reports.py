# SPDX-License-Identifier: Apache-2.0
"""More mutants of scripts/mutate.py: where memory and time go."""
from mutants import M, cli, cpu, graph, providers

MEMORY = providers("MemoryReport.*")
EARLY = providers("FreeEarly.*:Plan.*")

MUTANTS = (
    M("memory report: a place handed on counts twice",
      "providers/memory_report.cc", "t.last - handed_on",
      "t.last - 0 * handed_on", MEMORY),
    M("memory report: a gradient behind a view is none",
      "providers/memory_report.cc", "parameter_gradients_.insert(Root(value))",
      "parameter_gradients_.insert(value)", MEMORY),
    M("memory report: gradients to come are held already",
      "providers/memory_report.cc",
      "tenant.first < write && write <= tenant.last", "write <= tenant.last",
      MEMORY),
    M("free early: results cost nothing", "providers/free_early.cc",
      "    made += more;\n", "", EARLY),
    M("free early: not all readers wait", "providers/free_early.cc",
      "when = std::max(when, ready[Index(value.readers[i])]);",
      "when = std::max(when, std::min(when, ready[0]));", EARLY),
    M("free early: what lives on counts", "providers/plan.cc",
      "stays ? 0 : m.bytes", "m.bytes", EARLY),
    M("free early: results outside the arena move", "providers/plan.cc",
      "bytes = stays || bytes == kElsewhere ? kElsewhere : bytes + m.bytes;",
      "bytes += m.bytes;", EARLY),
    M("profile: the first step counts", "providers/profile.cc",
      "++begun_ == 2", "++begun_ == 3", providers("Profile*")),
    M("profile: evaluations count", "providers/profile.cc",
      "  in_step_ = false;\n", "", providers("Profile*")),
    M("profile: FP8 products against the peak of floats",
      "cli/profile_text.cc", "node.eight_bit ? peaks.eight_bit_flops",
      "!node.eight_bit ? peaks.eight_bit_flops", cli("ProfileText.*")),
    M("cost: causal attention without its diagonal", "graph/node_cost.cc",
      "short_rows * (short_rows + 1) / 2", "short_rows * short_rows / 2",
      graph("NodeCost.*")),
    M("norm: the gradient writes before it reads", "providers/cpu/norm.cc",
      "  Tensor statistics[2];\n",
      "  Tensor statistics[2];\n"
      "  std::fill_n(o.dx.data<float>(), 9, 1.0f);\n", cpu("InPlace.*")),
)
