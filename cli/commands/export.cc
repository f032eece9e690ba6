// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>

#include "base/check.h"
#include "base/file.h"
#include "base/printable.h"
#include "cli/budget_flags.h"
#include "cli/commands/commands.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/run_session.h"
#include "data/safetensors.h"
#include "graph/onnx/onnx_io.h"
#include "training/artifacts/ort_artifacts.h"
#include "training/artifacts/ort_state.h"

namespace onnx_fp8 {
namespace {

// The end of the name of a checkpoint of onnxruntime-training.
constexpr char kCheckpoint[] = ".ckpt";

std::string Extension(const std::string& path) {
  return std::filesystem::path(path).extension();
}

struct ExportFlags {
  std::string folder, checkpoint, model;
  std::vector<std::string> out, outputs;
  bool external_data = false;
  bool best = false;
  Budgets budgets;
};

bool AnyEnds(const std::vector<std::string>& paths, const char* extension) {
  return std::ranges::any_of(paths, [&](const std::string& path) {
    return Extension(path) == extension;
  });
}

// Artifacts of onnxruntime-training, with the weights of a checkpoint.
void ExportArtifacts(const ExportFlags& values) {
  if (AnyEnds(values.out, kCheckpoint)) {
    throw UsageError("--out: a .ckpt is for a run, got artifacts");
  }
  if (values.best) throw UsageError("--best is for the folder of a run");
  OrtArtifacts artifacts =
      ReadOrtArtifacts(values.folder, values.budgets, values.checkpoint);
  TensorMap weights(artifacts.checkpoint.trained.begin(),
                    artifacts.checkpoint.trained.end());
  weights.insert(artifacts.checkpoint.frozen.begin(),
                 artifacts.checkpoint.frozen.end());
  weights.erase(kOrtScales);
  const Graph& graph = *artifacts.forward.graph;
  std::string outputs;
  if (AnyEnds(values.out, ".onnx")) {
    PrepareInference(artifacts, values.outputs);
    for (const Value* value : graph.outputs) {
      outputs += (outputs.empty() ? "" : ", ") + value->name;
    }
  }
  for (const std::string& path : values.out) {
    bool model = Extension(path) == ".onnx";
    if (model) {
      WriteModel(graph, path, {values.external_data});
    } else {
      WriteSafetensors(path, Sources(weights));
    }
    Out() << Printable(path) << ": "
          << (model ? "the model of " + outputs + ", with " : "")
          << "the weights of the checkpoint\n";
  }
}

// A run's state in a checkpoint of onnxruntime-training.
void WriteCheckpoint(TrainingSession& session, const std::string& like,
                     const std::string& path) {
  OrtCheckpoint checkpoint = ReadOrtCheckpoint(like);
  TakeState(session.State().tensors, session.Options().optimizer, like,
            &checkpoint);
  WriteOrtCheckpoint(checkpoint, path);
}

// The user may give a training step, or a model, in place of the run that began
// with it.
void RequireNoFile(const std::string& folder) {
  if (!IsRegularFile(folder)) return;
  Fail("[", folder,
       "] is a file: expected the folder of a run, as train --out "
       "DIR makes it");
}

void ExportRun(const ExportFlags& values) {
  bool checkpoint = AnyEnds(values.out, kCheckpoint);
  if (checkpoint && values.checkpoint.empty()) {
    throw UsageError(
        "--out: a .ckpt needs --checkpoint, that of the artifacts from which "
        "the run began");
  }
  if (!checkpoint && !values.checkpoint.empty()) {
    throw UsageError(
        "--checkpoint is for a folder of artifacts, or for an --out that ends "
        "in .ckpt");
  }
  if (!values.outputs.empty()) {
    throw UsageError("--outputs is for a folder of artifacts");
  }
  RequireNoFile(values.folder);
  auto session = TrainingSession::Create(
      RunSessionOptions(LoadRun(RunFolder(values.folder)), values.budgets));
  session->Restore(CheckpointFolder(values.folder, values.best));
  for (const std::string& path : values.out) {
    if (Extension(path) == ".onnx") {
      session->ExportOnnx(path, values.external_data, values.model);
    } else if (Extension(path) == kCheckpoint) {
      WriteCheckpoint(*session, values.checkpoint, path);
    } else {
      Notes(session->ExportSafetensors(path));
    }
    Out() << Printable(path) << ": the weights of step " << session->step()
          << "\n";
  }
}

}  // namespace

int Export(const Arguments& arguments) {
  Flags flags("export",
              "Write the weights of a run: as the original model with these "
              "weights, by PyTorch's names and layout, or for "
              "onnxruntime-training.");
  ExportFlags values;
  MachineFlags machine;
  BudgetFlags budget_flags;
  flags.Positional("DIR", &values.folder,
                   "the folder of a run, or of onnxruntime.training.artifacts");
  flags.Files("-o,--out", &values.out,
              ".onnx, .safetensors or .ckpt (a checkpoint of "
              "onnxruntime-training), or several of them");
  flags.File("--checkpoint", &values.checkpoint,
             "of artifacts: a checkpoint in place of the folder's; of a run, "
             "for a .ckpt: the checkpoint of the artifacts that it began with");
  flags.List("--outputs", &values.outputs,
             "of artifacts: the values that the model computes (default: the "
             "scores that the loss reads)");
  flags.File("--model", &values.model,
             "for a run of a training step: the model that the step was made "
             "from, which gets the weights (default: the step gets all of its "
             "state)");
  flags.Switch(
      "--best", &values.best,
      "of a run with --save-best: the best checkpoint, in place of the "
      "newest");
  AddExternalData(flags, &values.external_data);
  budget_flags.AddTo(flags);
  machine.AddTo(flags);
  flags.Example("onnx-fp8 export runs/gpt -o trained.onnx");
  flags.Example("onnx-fp8 export runs/gpt -o weights.safetensors");
  if (!flags.Parse(arguments)) return 0;
  flags.Require({"DIR", "--out"});
  for (const std::string& path : values.out) {
    std::string end = Extension(path);
    if (end == ".onnx" || end == ".safetensors" || end == kCheckpoint) continue;
    throw UsageError(
        "--out: expected a name that ends in .onnx, .safetensors or .ckpt, "
        "got " +
        path);
  }
  machine.Apply();
  values.budgets = budget_flags.Make();
  if (!RunFolder(values.folder).HasConfig() &&
      HoldsOrtArtifacts(values.folder)) {
    ExportArtifacts(values);
  } else {
    ExportRun(values);
  }
  return 0;
}

}  // namespace onnx_fp8
