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
      "  out_ << Printable(text) << std::endl;",
      "  out_ << Printable(text) << std::endl;",
      cli("Progress*")),
    M("table: cells are printed as they are", "cli/report/text.cc",
      "cell = Printable(cell);", "(void)cell;", cli("TableTest.*")),
    M("external copy: goes on after Ctrl-C", "cli/report/progress.cc",
      "if (Interrupted()) {", "if (false) {", cli("Progress*")),
)
