// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>

#include "base/check.h"
#include "base/file.h"
#include "base/printable.h"
#include "cli/commands/commands.h"
#include "cli/output.h"
#include "cli/run_session.h"
#include "cli/served_files.h"
#include "data/safetensors.h"
#include "graph/onnx/onnx_io.h"
#include "onnx_fp8/option_names.h"
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
    {"Own",
     "format",
     OptionKind::kChoice,
     "for programs that serve the model: a new folder `out` with the FP8 codes "
     "and scales of the run (hf-fp8) or with bfloat16 weights (bf16), or an "
     ".onnx file of the forward with codes and scales (onnx-fp8)",
     "",
     {.choices = kServedFormats}},
    {"Own", "like", OptionKind::kFile,
     "for `format` hf-fp8 and bf16: a folder of Hugging Face whose config.json "
     "is completed and whose tokenizer is copied"},
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
      {"onnx-fp8 export runs/gpt -o trained.onnx weights.safetensors",
       "onnx-fp8 export runs/gpt --adapter adapter",
       "onnx-fp8 export runs/gpt -o served --format hf-fp8 --like hub/gpt"}};
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
  for (const char* name : {"adapter", "format", "like"}) {
    if (!flags.Has(name)) continue;
    throw OptionError(Reference(name) + " is for the folder of a run");
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

// The options of `format`, checked; nullopt: there is none.
std::optional<ServedFiles> ServedOf(const OptionSet& flags) {
  const std::string format = flags.Text("format");
  if (format.empty()) {
    if (!flags.Has("like")) return std::nullopt;
    throw OptionError("`like` needs `format` hf-fp8 or bf16");
  }
  for (const char* name : {"checkpoint", "model", "outputs"}) {
    if (!flags.Has(name)) continue;
    throw OptionError(Reference(name) + " is not for `format`");
  }
  const std::vector<std::string> paths = flags.List("out");
  if (paths.size() != 1) {
    throw OptionError("`out`: expected one folder or file for `format`, got " +
                      std::to_string(paths.size()));
  }
  return ServedFilesOf(format, "out", paths[0], flags.Text("like"),
                       flags.On("external_data"));
}

void ExportServed(TrainingSession& session, const ServedFiles& files,
                  bool ema) {
  Notes(session.ExportServed(files));
  const bool model = files.format == ServedFormat::kOnnxFp8;
  Out() << Printable(files.path) << ": the "
        << (model ? "forward with the " : "") << (ema ? "averages of the " : "")
        << "weights of step " << session.step()
        << ", for programs that serve it\n";
}

void ExportRun(const OptionSet& flags) {
  const std::vector<std::string> paths = flags.List("out");
  const std::string folder = flags.Text("RUN");
  const std::string like = flags.Text("checkpoint");
  const std::optional<ServedFiles> served = ServedOf(flags);
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
  if (ema && options.optimizer.ema == 0) {
    throw OptionError(
        "`ema`: expected a run with `ema`, got one that keeps no averages of "
        "weights");
  }
  options.eval_with = ema ? "ema" : "weights";
  auto session = TrainingSession::Create(options);
  session->Restore(CheckpointFolder(folder, flags.On("best")));
  if (served) ExportServed(*session, *served, ema);
  for (const std::string& path : paths) {
    if (served) break;
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
    if (flags.Has("format")) break;
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
