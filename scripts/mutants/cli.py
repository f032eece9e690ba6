# SPDX-License-Identifier: Apache-2.0
"""Mutants of cli/."""
from mutant import M, bad_input, cli, cli_report, python

OPERATOR_NEW = cli("OperatorNew*")
TRUNCATION_DEATH_TEST = cli("TruncationDeathTest.*")
FOREIGN_FILES = python("foreign_files and (run or config or profile)")

MUTANTS = (
    M("options: a name of the API on the terminal", "cli/api_names.cc",
      '    {"`freeze`", "--freeze"},\n', "", cli("ApiNames*")),
    M("options: what does not fit exits with 1", "cli/commands/commands.cc",
      "} catch (const OptionError& error) {\n"
      "    return wrong_use(error);\n"
      "  } catch", "} catch", bad_input("")),
    M("budgets: k is a thousand and a bit", "cli/budget_flags.cc",
      "int64_t{1} << (10 * i)", "int64_t{1} << (9 * i)", cli("BudgetFlags.*")),
    M("calibrate: the first batch is forgotten", "cli/commands/calibrate.cc",
      "recipe.amax_history = steps;",
      "recipe.amax_history = std::max<int64_t>(1, steps - 1);",
      python("test_calibrate")),
    M("cli: wrong usage exits with 1", "cli/commands/commands.cc",
      '<< " --help shows how it is used\\n";\n'
      "    return 2;",
      '<< " --help shows how it is used\\n";\n'
      "    return 1;", python("wrong_usage")),
    M("cli: a full stdout is no failure", "cli/commands/commands.cc",
      "Check(static_cast<bool>(std::cout.flush()), ", "Check(true, ",
      python("full_output")),
    M("truncation: the program does not look", "cli/commands/commands.cc",
      "  CatchTruncation();\n", "", python("cut_while_it_is_read")),
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
    M("inspect: padding of sizes that fit", "cli/report/model_report.cc",
      "size.value % d.alignment() == 0", "size.value % 8 == 0",
      python("inspect")),
    M("inspect: prints other names than --shape takes", "cli/report/model_report.cc",
      "name = AxisName(input, i);",
      'if (name.empty()) name = Concat(input.name, "_", i);',
      python("axes_without")),
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
    M("profile: FP8 products against the peak of floats",
      "cli/report/profile_text.cc", "node.eight_bit ? peaks.eight_bit_flops",
      "!node.eight_bit ? peaks.eight_bit_flops", cli_report("ProfileText.*")),
    M("progress: a note overwrites the line", "cli/report/progress.cc",
      "  Close();\n"
      "  out_ << InFlags", "  out_ << InFlags", cli_report("Progress*")),
    M("external copy: goes on after Ctrl-C", "cli/report/progress.cc",
      "if (Interrupted()) {", "if (false) {", cli_report("Progress*")),
    M("budgets: a run's folder may hold the flag", "cli/run_session.cc",
      '"--profile-summary", "--budget",', '"--profile-summary",',
      python("a_run_does_not_keep_it")),
    M("run: its config names outputs", "cli/run_session.cc",
      "config.settings = KeptFlags(std::move(config.settings));", "",
      FOREIGN_FILES),
    M("run: its config keeps outputs", "cli/commands/train.cc",
      "KeptFlags(saved)", "saved", FOREIGN_FILES),
    M("train: what has no gradient is found by the first step",
      "cli/commands/train.cc", "  session_->RequireGradients();\n", "",
      python("written_files")),
    M("train: reads a folder that another process has", "cli/commands/train.cc",
      "if (!folder_is_new_) folder_.Lock();", "folder_is_new_ = true;",
      python("only_one_process")),
    M("train: an interrupt exits with 0", "cli/commands/train.cc",
      "return kInterrupted;", "return 0;", python("signal_saves")),
    M("train: --json prints a table", "cli/commands/train.cc",
      "if (values_.json) {\n"
      "    Report(&json);",
      "if (!values_.json) {\n"
      "    Report(&json);", python("metrics_have_one_line or more_steps")),
    M("train: a folder for what is refused", "cli/commands/train.cc",
      "    ReadFolder();\n",
      "    ReadFolder();\n"
      "    MakeFolder();\n", python("written_files")),
    M("train: a last step that is not saved is no error", "cli/commands/train.cc",
      'Check(r.saved, "the last', 'Check(true, "the last',
      python("full_disk")),
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
