// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <iostream>

#include "base/check.h"
#include "cli/budget_flags.h"
#include "cli/commands/commands.h"
#include "cli/options.h"
#include "cli/run_session.h"
#include "graph/onnx/onnx_io.h"
#include "graph/onnx/written_file.h"

namespace onnx_fp8 {

int Export(const Arguments& arguments) {
  Flags flags("export",
              "Write the weights of a run: as the original model with these "
              "weights, or by PyTorch's names and layout.");
  std::string folder;
  std::vector<std::string> out;
  MachineFlags machine;
  bool external_data = false;
  BudgetFlags budget_flags;
  flags.Positional("DIR", &folder, "the folder of a run");
  flags.Files("-o,--out", &out, ".onnx or .safetensors, or both");
  AddExternalData(flags, &external_data);
  budget_flags.AddTo(flags);
  machine.AddTo(flags);
  flags.Example("onnx-fp8 export runs/gpt -o trained.onnx");
  flags.Example("onnx-fp8 export runs/gpt -o weights.safetensors");
  if (!flags.Parse(arguments)) return 0;
  flags.Require({"DIR", "--out"});
  auto extension = [](const std::string& path) {
    return std::filesystem::path(path).extension();
  };
  for (const std::string& path : out) {
    if (extension(path) == ".onnx" || extension(path) == ".safetensors") {
      continue;
    }
    throw UsageError(
        "--out: expected a name that ends in .onnx or "
        ".safetensors, got " +
        path);
  }
  machine.Apply();
  Budgets budgets = budget_flags.Make();
  // The user may give a model file of ours in place of a folder.
  bool file = std::filesystem::is_regular_file(folder);
  if (file && extension(folder) == ".onnx") {
    RequireNoStep(*ReadModel(folder, {.budgets = budgets}));
  }
  auto session = TrainingSession::Create(
      RunSessionOptions(LoadRun(RunFolder(folder)), budgets));
  session->Restore(folder);
  for (const std::string& path : out) {
    if (extension(path) == ".onnx") {
      session->ExportOnnx(path, external_data);
    } else {
      for (const std::string& remark : session->ExportSafetensors(path)) {
        std::cerr << "onnx-fp8: note: " << remark << "\n";
      }
    }
    std::cout << path << ": the weights of step " << session->step() << "\n";
  }
  return 0;
}

}  // namespace onnx_fp8
