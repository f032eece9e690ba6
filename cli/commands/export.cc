// SPDX-License-Identifier: Apache-2.0
#include <filesystem>

#include "base/check.h"
#include "cli/budget_flags.h"
#include "cli/commands/commands.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/run_session.h"
#include "data/safetensors.h"
#include "graph/onnx/onnx_io.h"
#include "training/ort_artifacts.h"

namespace onnx_fp8 {
namespace {

std::filesystem::path Extension(const std::string& path) {
  return std::filesystem::path(path).extension();
}

// Artifacts of onnxruntime-training, with the weights of a checkpoint.
int ExportArtifacts(const std::string& folder, const std::string& checkpoint,
                    const std::vector<std::string>& out, bool external_data,
                    const Budgets& budgets) {
  OrtArtifacts artifacts = ReadOrtArtifacts(folder, budgets, checkpoint);
  TensorMap weights(artifacts.checkpoint.trained.begin(),
                    artifacts.checkpoint.trained.end());
  weights.insert(artifacts.checkpoint.frozen.begin(),
                 artifacts.checkpoint.frozen.end());
  weights.erase(kOrtScales);
  for (const std::string& path : out) {
    if (Extension(path) == ".onnx") {
      PrepareInference(artifacts.forward);
      WriteModel(*artifacts.forward.graph, path, {external_data});
    } else {
      WriteSafetensors(path, Sources(weights));
    }
    Out() << path << ": the weights of the checkpoint\n";
  }
  return 0;
}

// The user may give a training step, or a model, in place of the run that began
// with it.
void RequireNoFile(const std::string& folder) {
  if (!std::filesystem::is_regular_file(folder)) return;
  Fail("[", folder,
       "] is a file: expected the folder of a run, as train --out "
       "DIR makes it");
}

}  // namespace

int Export(const Arguments& arguments) {
  Flags flags("export",
              "Write the weights of a run: as the original model with these "
              "weights, or by PyTorch's names and layout.");
  std::string folder, checkpoint, model;
  std::vector<std::string> out;
  MachineFlags machine;
  bool external_data = false;
  BudgetFlags budget_flags;
  flags.Positional("DIR", &folder,
                   "the folder of a run, or of onnxruntime.training.artifacts");
  flags.Files("-o,--out", &out, ".onnx or .safetensors, or both");
  flags.File("--checkpoint", &checkpoint,
             "of artifacts: a checkpoint in place of the folder's");
  flags.File("--model", &model,
             "for a run of a training step: the model that the step was made "
             "from, which gets the weights (default: the step gets all of its "
             "state)");
  AddExternalData(flags, &external_data);
  budget_flags.AddTo(flags);
  machine.AddTo(flags);
  flags.Example("onnx-fp8 export runs/gpt -o trained.onnx");
  flags.Example("onnx-fp8 export runs/gpt -o weights.safetensors");
  if (!flags.Parse(arguments)) return 0;
  flags.Require({"DIR", "--out"});
  for (const std::string& path : out) {
    if (Extension(path) == ".onnx" || Extension(path) == ".safetensors") {
      continue;
    }
    throw UsageError(
        "--out: expected a name that ends in .onnx or "
        ".safetensors, got " +
        path);
  }
  machine.Apply();
  Budgets budgets = budget_flags.Make();
  RunFolder run(folder);
  if (!run.HasConfig() && HoldsOrtArtifacts(folder)) {
    return ExportArtifacts(folder, checkpoint, out, external_data, budgets);
  }
  if (!checkpoint.empty()) {
    throw UsageError("--checkpoint is for a folder of artifacts");
  }
  RequireNoFile(folder);
  auto session =
      TrainingSession::Create(RunSessionOptions(LoadRun(run), budgets));
  session->Restore(folder);
  for (const std::string& path : out) {
    if (Extension(path) == ".onnx") {
      session->ExportOnnx(path, external_data, model);
    } else {
      Notes(session->ExportSafetensors(path));
    }
    Out() << path << ": the weights of step " << session->step() << "\n";
  }
  return 0;
}

}  // namespace onnx_fp8
