// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>

#include "base/check.h"
#include "base/file.h"
#include "base/printable.h"
#include "cli/commands/commands.h"
#include "cli/output.h"
#include "cli/run_session.h"
#include "data/safetensors.h"
#include "graph/onnx/onnx_io.h"
#include "training/artifacts/ort_artifacts.h"
#include "training/artifacts/ort_state.h"
#include "training/run/session_options.h"

namespace onnx_fp8 {
namespace {

// The end of the name of a checkpoint of onnxruntime-training.
constexpr char kCheckpoint[] = ".ckpt";

std::string Extension(const std::string& path) {
  return std::filesystem::path(path).extension();
}

const Option kExportOptions[] = {
    {"Own", "RUN", OptionKind::kFile,
     "the folder of a run, or of onnxruntime.training.artifacts"},
    {"Own", "adapter", OptionKind::kFile,
     "of a run with `lora`: a folder for adapter_model.safetensors and "
     "adapter_config.json, which PEFT loads; other files get the weights with "
     "the adapters merged into them"},
    {"Own",
     "out",
     OptionKind::kFiles,
     ".onnx, .safetensors or .ckpt (a checkpoint of onnxruntime-training), or "
     "several of them",
     "",
     {.letter = "o"}},
    {"Own", "checkpoint", OptionKind::kFile,
     "of artifacts: a checkpoint in place of the folder's; of a run, for a "
     ".ckpt: the checkpoint of the artifacts that it began with"},
    {"Own", "ema", OptionKind::kSwitch,
     "of a run with `ema`: the averages of the weights in place of the "
     "weights"},
    {"Own", "model", OptionKind::kFile,
     "for a run of a training step: the model that the step was made from, "
     "which gets the weights (default: the step gets all of its state)"},
};

CommandHelp ExportHelp() {
  return {
      "export",
      "Write the weights of a run: as the original model with these "
      "weights, by PyTorch's names and layout, or for "
      "onnxruntime-training.",
      {{"Options", {"Own", "Scores", "Best", "External", "Budget", "Machine"}}},
      {"onnx-fp8 export runs/gpt -o trained.onnx",
       "onnx-fp8 export runs/gpt -o weights.safetensors",
       "onnx-fp8 export runs/gpt --adapter adapter"}};
}

bool AnyEnds(const std::vector<std::string>& paths, const char* extension) {
  return std::ranges::any_of(paths, [&](const std::string& path) {
    return Extension(path) == extension;
  });
}

// Artifacts of onnxruntime-training, with the weights of a checkpoint.
void ExportArtifacts(const OptionSet& flags) {
  const std::vector<std::string> paths = flags.List("out");
  if (AnyEnds(paths, kCheckpoint)) {
    throw OptionError("`out`: a .ckpt is for a run, got artifacts");
  }
  if (flags.On("best")) {
    throw OptionError("`best` is for the folder of a run");
  }
  if (flags.On("ema")) {
    throw OptionError("`ema` is for the folder of a run");
  }
  if (flags.Has("adapter")) {
    throw OptionError("`adapter` is for the folder of a run");
  }
  OrtArtifacts artifacts = ReadOrtArtifacts(flags.Text("RUN"), BudgetsOf(flags),
                                            flags.Text("checkpoint"));
  TensorMap weights(artifacts.checkpoint.trained.begin(),
                    artifacts.checkpoint.trained.end());
  weights.insert(artifacts.checkpoint.frozen.begin(),
                 artifacts.checkpoint.frozen.end());
  weights.erase(kOrtScales);
  const Graph& graph = *artifacts.forward.graph;
  std::string outputs;
  if (AnyEnds(paths, ".onnx")) {
    PrepareInference(artifacts, flags.List("outputs"));
    for (const Value* value : graph.outputs) {
      outputs += (outputs.empty() ? "" : ", ") + value->name;
    }
  }
  for (const std::string& path : paths) {
    bool model = Extension(path) == ".onnx";
    if (model) {
      WriteModel(graph, path, {flags.On("external_data")});
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
  TensorMap state = session.State().tensors;
  for (const auto& [name, weight] : session.ReadWeights()) state[name] = weight;
  TakeState(state, session.Options().optimizer, like, &checkpoint);
  WriteOrtCheckpoint(checkpoint, path);
}

// The user may give a training step, or a model, in place of the run that began
// with it.
void RequireNoFile(const std::string& folder) {
  if (!IsRegularFile(folder)) return;
  Fail("[", folder,
       "] is a file: expected the folder of a run, which `train()` writes to "
       "`out`");
}

void ExportRun(const OptionSet& flags) {
  const std::vector<std::string> paths = flags.List("out");
  const std::string folder = flags.Text("RUN");
  const std::string like = flags.Text("checkpoint");
  bool checkpoint = AnyEnds(paths, kCheckpoint);
  if (checkpoint && like.empty()) {
    throw OptionError(
        "`out`: a .ckpt needs `checkpoint`, the file of the artifacts from "
        "which the run began");
  }
  if (!checkpoint && !like.empty()) {
    throw OptionError(
        "`checkpoint` is for a folder of artifacts, or for an `out` that ends "
        "in .ckpt");
  }
  if (flags.Has("outputs")) {
    throw OptionError("`outputs` is for a folder of artifacts");
  }
  const bool ema = flags.On("ema");
  if (checkpoint && ema) {
    throw OptionError(
        "`ema`: a .ckpt has weights and moments that training goes on with, "
        "and no averages");
  }
  RequireNoFile(folder);
  SessionOptions options =
      RunSessionOptions(LoadRun(RunFolder(folder)), BudgetsOf(flags));
  options.eval_with = ema ? "ema" : "weights";
  auto session = TrainingSession::Create(options);
  session->Restore(CheckpointFolder(folder, flags.On("best")));
  for (const std::string& path : paths) {
    if (Extension(path) == ".onnx") {
      session->ExportOnnx(path, flags.On("external_data"), flags.Text("model"));
    } else if (Extension(path) == kCheckpoint) {
      WriteCheckpoint(*session, like, path);
    } else {
      Notes(session->ExportSafetensors(path));
    }
    const bool merges = !session->Options().lora.empty();
    Out() << Printable(path) << ": the " << (ema ? "averages of the " : "")
          << "weights of step " << session->step()
          << (merges ? ", with the adapters merged in float32" : "") << "\n";
  }
  if (flags.Has("adapter")) {
    const std::string adapter = flags.Text("adapter");
    session->ExportAdapter(adapter);
    Out() << Printable(adapter) << ": the " << (ema ? "averages of the " : "")
          << "adapters of step " << session->step() << "\n";
  }
}

}  // namespace

int Export(const Arguments& arguments) {
  Flags flags(ExportHelp(), kExportOptions);
  if (!flags.Parse(arguments)) return 0;
  flags.Require({"RUN"});
  if (!flags.Has("adapter")) flags.Require({"out"});
  for (const std::string& path : flags.List("out")) {
    std::string end = Extension(path);
    if (end == ".onnx" || end == ".safetensors" || end == kCheckpoint) continue;
    throw OptionError(
        "`out`: expected a name that ends in .onnx, .safetensors or .ckpt, "
        "got " +
        path);
  }
  ApplyMachine(flags);
  const std::string folder = flags.Text("RUN");
  if (!RunFolder(folder).HasConfig() && HoldsOrtArtifacts(folder)) {
    ExportArtifacts(flags);
  } else {
    ExportRun(flags);
  }
  return 0;
}

}  // namespace onnx_fp8
