// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/commands.h"

#include <csignal>
#include <cstdio>
#include <exception>
#include <iostream>
#include <new>

#include "base/check.h"
#include "base/out_of_memory.h"
#include "base/printable.h"
#include "cli/interrupt.h"
#include "cli/operator_new.h"
#include "cli/output.h"
#include "cli/truncation.h"
#include "onnx_fp8/option_error.h"

namespace onnx_fp8 {
namespace {

struct Command {
  const char* name;
  int (*run)(const Arguments&);
  const char* summary;
};

constexpr Command kCommands[] = {
    {"train", Train, "train an exported model"},
    {"eval", Eval, "loss of a run or a model over a data set"},
    {"export", Export, "a run's weights as ONNX or safetensors"},
    {"calibrate", Calibrate, "scales for static scaling"},
    {"grad", Grad, "loss and gradients of one batch"},
    {"inspect", Inspect, "parameters, matrix products, memory of a model"},
    {"plan", PlanCommand, "memory, traffic, time of a step on many GPUs"},
    {"rewrite", Rewrite, "a model, or its training step, in FP8 as ONNX"},
    {"sensitivity", SensitivityCommand, "which layers stand which FP8 recipe"},
    {"explain", Explain, "the node that makes NaN or Inf in a run's step"},
    {"report", Report, "one HTML page about runs"},
    {"compare", Compare, "where two dumps of a step part first"},
    {"recipes", Recipes, "the FP8 recipes known by name"},
    {"run", Run, "outputs of a model for one batch"},
    {"bench", Bench, "speed of products, layers and attention here"},
    {"ops", Ops, "the operators of the domain onnx_fp8"},
    {"version", Version, "versions and what this machine has"},
};

const Command* FindCommand(const std::string& name) {
  for (const Command& command : kCommands) {
    if (name == command.name) return &command;
  }
  return nullptr;
}

void PrintHelp(std::ostream& out) {
  out << "Train ONNX models in FP8, on a CPU or an NVIDIA GPU.\n\n"
         "Usage: onnx-fp8 COMMAND …\n\nCommands:\n";
  for (const Command& command : kCommands) {
    std::string name = command.name;
    name.resize(12, ' ');
    out << "  " << name << command.summary << "\n";
  }
  out << "\n`onnx-fp8 COMMAND --help` explains one, with examples.\n";
}

int UnknownCommand(const std::string& name) {
  std::vector<std::string> names;
  for (const Command& command : kCommands) names.push_back(command.name);
  std::string nearest = Nearest(name, names);
  std::cerr << "onnx-fp8: there is no command " << Printable(name)
            << (nearest.empty() ? "" : "; did you mean " + nearest + "?")
            << "\nonnx-fp8 --help lists the commands\n";
  return 2;
}

}  // namespace

int Main(const std::vector<std::string>& arguments) {
  // A file beyond the limit on sizes then gives an error like any other.
  std::signal(SIGXFSZ, SIG_IGN);
  CatchTruncation();
  std::string name = arguments.empty() ? "" : arguments[0];
  if (name == "--help" || name == "-h" ||
      (name == "help" && arguments.size() == 1)) {
    PrintHelp(Out());
    return 0;
  }
  if (name.empty()) {
    PrintHelp(std::cerr);
    return 2;
  }
  std::vector<std::string> rest(arguments.begin() + 1, arguments.end());
  if (name == "help") {
    name = rest[0];
    rest.erase(rest.begin());
    rest.push_back("--help");
  }
  if (name == "--version") name = "version";
  const Command* command = FindCommand(name);
  if (!command) return UnknownCommand(name);
  auto text = [](const std::exception& error) {
    return Printable(InFlags(error.what()));
  };
  try {
    int code = command->run({rest});
    // Output that a closed pipe or a full disk swallowed was not written.
    Check(static_cast<bool>(Out().flush()), "can't write to stdout");
    return code;
  } catch (const OptionError& error) {
    std::cerr << "onnx-fp8 " << name << ": " << text(error) << "\nonnx-fp8 "
              << name << " --help shows how it is used\n";
    return 2;
  } catch (const Interruption& error) {
    std::cerr << "onnx-fp8: " << text(error) << "\n";
    return kInterrupted;
  } catch (const std::bad_alloc&) {
    std::cerr << "onnx-fp8: " << OutOfMemoryText(BytesOfFailedNew()).text
              << "\n";
  } catch (const std::exception& error) {
    std::cerr << "onnx-fp8: " << text(error) << "\n";
  }
  return 1;
}

}  // namespace onnx_fp8
