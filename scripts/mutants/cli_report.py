# SPDX-License-Identifier: Apache-2.0
"""Mutants of cli/report/."""
from mutant import M, cli, python

MUTANTS = (
    M("inspect: padding of sizes that fit", "cli/report/model_report.cc",
      "size.value % d.alignment() == 0", "size.value % 8 == 0",
      python("inspect")),
    M("inspect: prints other names than --shape takes", "cli/report/model_report.cc",
      "name = AxisName(input, i);",
      'if (name.empty()) name = Concat(input.name, "_", i);',
      python("axes_without")),
    M("profile: FP8 products against the peak of floats",
      "cli/report/profile_text.cc", "node.eight_bit ? peaks.eight_bit_flops",
      "!node.eight_bit ? peaks.eight_bit_flops", cli("ProfileText.*")),
    M("progress: a note overwrites the line", "cli/report/progress.cc",
      "  Close();\n"
      "  out_ << text << std::endl;", "  out_ << text << std::endl;",
      cli("Progress*")),
    M("external copy: goes on after Ctrl-C", "cli/report/progress.cc",
      "if (Interrupted()) {", "if (false) {", cli("Progress*")),
)
