# SPDX-License-Identifier: Apache-2.0
"""Mutants of cli/commands/."""
from mutant import M, bad_input, python

FOREIGN_FILES = python("foreign_files and (run or config or profile)")

MUTANTS = (
    M("train: moments of artifacts are not saved at once",
      "cli/commands/train.cc",
      "if (start_ && start_->has_moments()) session_->Save(values_.out);", "",
      python("ort_checkpoints and keeps_the_moments")),
    M("options: what does not fit exits with 1", "cli/commands/commands.cc",
      "} catch (const OptionError& error) {\n"
      "    return wrong_use(error);\n"
      "  } catch", "} catch", bad_input("")),
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
      "Check(static_cast<bool>(Out().flush()), ", "Check(true, ",
      python("full_output")),
    M("truncation: the program does not look", "cli/commands/commands.cc",
      "  CatchTruncation();\n", "", python("cut_while_it_is_read")),
    M("run: its config keeps outputs", "cli/commands/train.cc",
      "KeptFlags(saved)", "saved", FOREIGN_FILES),
    M("train: reads a folder that another process has", "cli/commands/train.cc",
      "if (!folder_is_new_ && changes) folder_.Lock();", "folder_is_new_ = true;",
      python("only_one_process")),
    M("train: an interrupt exits with 0", "cli/commands/train.cc",
      "return kInterrupted;", "return 0;", python("signal_saves")),
    M("train: --json prints a table", "cli/commands/train.cc",
      "if (values_.json) {\n"
      "    Report(&json);",
      "if (!values_.json) {\n"
      "    Report(&json);", python("metrics_have_one_line or more_steps")),
    M("train: a folder for what is refused", "cli/commands/train.cc",
      "    if (IsFirst()) ReadFolder();\n",
      "    if (IsFirst()) ReadFolder();\n"
      "    if (IsFirst()) MakeFolder();\n", python("written_files")),
    M("train: a last step that is not saved is no error", "cli/commands/train.cc",
      'Check(r.saved, "the last', 'Check(true, "the last',
      python("full_disk")),
)
