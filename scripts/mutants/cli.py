# SPDX-License-Identifier: Apache-2.0
"""Mutants of cli/."""
from mutant import M, bad_input, cli, python

OPERATOR_NEW = cli("OperatorNew*")
FOREIGN_FILES = python("foreign_files and (run or config or profile)")
TRUNCATION_DEATH_TEST = cli("TruncationDeathTest.*")

MUTANTS = (
    M("options: a name of the API on the terminal", "cli/api_names.cc",
      '    {"`freeze`", "--freeze"},\n', "", cli("ApiNames*")),
    M("budgets: k is a thousand and a bit", "cli/budget_flags.cc",
      "int64_t{1} << (10 * i)", "int64_t{1} << (9 * i)", cli("BudgetFlags.*")),
    M("resume: flags of older versions are passed over", "cli/run_session.cc",
      "    TranslateOldFlags(&config.settings);\n",
      '    config.settings.erase("--amax-history");\n'
      '    config.settings.erase("--margin");\n', python("older_versions")),
    M("cli: what is printed for a shell is not quoted", "cli/flags.cc",
      "bool plain =\n"
      "        !word.empty() &&",
      "bool plain =\n"
      "        !word.empty() ||", python("paths_with")),
    M("flags: an empty word is one of a list", "cli/flags.cc",
      'std::erase(*values, "")', 'std::erase(*values, "empty")', cli("Flags*"),
      python("resume_recipes")),
    M("train: SIGTERM ends it", "cli/interrupt.cc",
      "sigaction(SIGTERM, &action, nullptr);", "", python("signal_saves")),
    M("memory: no reserve for the message", "cli/operator_new.cc",
      "  onnx_fp8::KeepReserve();\n", "", OPERATOR_NEW),
    M("memory: the reserve is kept for ever", "cli/operator_new.cc",
      "  onnx_fp8::FreeReserve();\n", "", OPERATOR_NEW),
    M("memory: `new` does not tell the amount", "cli/operator_new.cc",
      "  failed_bytes = bytes;\n", "", python("first_byte or little_memory")),
    M("memory: any exception is told as its end", "cli/operator_new.cc",
      "|| !memory", "|| (!memory && !thrown)", OPERATOR_NEW),
    M("shape: axes without a name have none", "cli/options.cc",
      'Concat(input.name, ".", i)', '""', cli("ShapeFlagTest.*"),
      python("axes_without")),
    M("value: any input has one", "cli/options.cc",
      "if (!MayBeKey(input->dtype, shape)) {", "if (false) {",
      bad_input("value_of")),
    M("value: any number is one", "cli/options.cc",
      "if (!ok || error != std::errc() || stop != end) {\n"
      "      throw UsageError(\n"
      '          "--value:',
      "if (!ok || error != std::errc()) {\n"
      "      throw UsageError(\n"
      '          "--value:', bad_input("value_of")),
    M("scales that nothing asks for are passed over", "cli/options.cc",
      "if (!scales.empty() && !UsesStatic(result, filter)) {",
      "if (scales.empty() && !UsesStatic(result, filter)) {",
      bad_input("scale")),
    M("budgets: a run's folder may hold the flag", "cli/run_session.cc",
      '"--budget",', "",
      python("a_run_does_not_keep_it")),
    M("resume: a run keeps its choices for speed", "cli/run_session.cc",
      '"--tune",', "",
      python("choices_for_speed")),
    M("run: its config names outputs", "cli/run_session.cc",
      "config.settings = KeptFlags(std::move(config.settings));", "",
      FOREIGN_FILES),
    M("train: the seed does not reach the session", "cli/train_flags.cc",
      "options.seed = static_cast<uint64_t>(seed);", "", python("data_order")),
    M("truncation: every fault is ours", "cli/truncation.cc",
      "info->si_code == BUS_ADRERR ? MappedFileAt(info->si_addr) : nullptr;",
      "MappedFileAt(info->si_addr);\n"
      '  if (!file) file = "?";', TRUNCATION_DEATH_TEST),
    M("truncation: others' handlers are forgotten", "cli/truncation.cc",
      "sigaction(signal, &before, nullptr);", "std::signal(signal, SIG_DFL);",
      TRUNCATION_DEATH_TEST),
    M("truncation: names control the terminal", "cli/truncation.cc",
      'Say(control ? "?" : name, 1);', "Say(name, 1);", TRUNCATION_DEATH_TEST),
)
