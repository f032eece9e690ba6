// SPDX-License-Identifier: Apache-2.0
#include "training/artifacts/ort_artifacts.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/check.h"
#include "base/file.h"
#include "base/joined.h"
#include "base/mapped_file.h"
#include "graph/onnx/onnx_io.h"
#include "graph/onnx/ort_scores.h"
#include "graph/passes/dead_code.h"
#include "graph/passes/inference_mode.h"
#include "onnx_fp8/recipe_text.h"

namespace onnx_fp8 {
namespace {

namespace fs = std::filesystem;

std::string In(const std::string& folder, const char* file) {
  return (fs::path(folder) / file).string();
}

OptimizerSpec ReadOptimizer(const std::string& path) {
  auto graph = ReadModel(path, {.as_is = true});
  for (const Node& node : graph->nodes()) {
    OptimizerSpec spec;
    if (node.op == "AdamWOptimizer") {
      spec.kind = "adamw";
      spec.beta1 = double{node.Float("alpha", 0.9f)};
      spec.beta2 = double{node.Float("beta", 0.999f)};
      spec.eps = double{node.Float("epsilon", 1e-8f)};
      spec.weight_decay = double{node.Float("weight_decay", 1e-2f)};
      Check(node.Int("correct_bias", 1) == 1, "[", path,
            "] expected an AdamWOptimizer with correct_bias 1, got 0");
      if (node.Int("adam_mode", 0) == 1) spec.kind = "adamw_hf";
      return spec;
    }
    if (node.op == "SGDOptimizerV2") {
      spec.kind = "sgd";
      spec.weight_decay = 0;
      return spec;
    }
  }
  Fail("[", path, "] expected an AdamWOptimizer or an SGDOptimizerV2, got ",
       graph->nodes().empty() ? "no node" : graph->nodes().front().op);
}

std::vector<Value*> NamedValues(const Graph& graph,
                                const std::vector<std::string>& names) {
  std::vector<Value*> values;
  for (const std::string& name : names) {
    Value* value = graph.Find(name);
    Check(value && value->producer, "[", graph.file,
          "] expected a value that the model computes, got `outputs` ", name);
    Check(std::ranges::find(values, value) == values.end(), "[", graph.file,
          "] expected each of `outputs` once, got ", name, " twice");
    values.push_back(value);
  }
  return values;
}

Value* OnlyScores(const Graph& graph, const OrtCheckpoint& checkpoint) {
  std::set<std::string> parameters;
  for (const NamedTensors* tensors :
       {&checkpoint.trained, &checkpoint.frozen}) {
    for (const auto& [name, tensor] : *tensors) parameters.insert(name);
  }
  std::vector<Value*> scores = FindScores(graph, parameters);
  std::vector<std::string> names;
  for (const Value* value : scores) names.push_back(value->name);
  Check(scores.size() == 1, "[", graph.file,
        "] expected one value that the model computes and its loss reads, got ",
        scores.empty() ? "none" : Joined(names),
        "; `outputs` names those of the model");
  return ScoresOfTokens(scores[0]);
}

}  // namespace

std::string OrtTrainingModel(const std::string& folder) {
  return In(folder, "training_model.onnx");
}
std::string OrtEvalModel(const std::string& folder) {
  return In(folder, "eval_model.onnx");
}
std::string OrtOptimizerModel(const std::string& folder) {
  return In(folder, "optimizer_model.onnx");
}
std::string OrtCheckpointFile(const std::string& folder) {
  return In(folder, "checkpoint");
}

bool HoldsOrtArtifacts(const std::string& folder) {
  std::error_code none;
  return fs::is_regular_file(OrtTrainingModel(folder), none);
}

void PrepareInference(OrtArtifacts& artifacts,
                      const std::vector<std::string>& outputs) {
  Graph& graph = *artifacts.forward.graph;
  std::vector<Value*> read;
  for (Value* input : graph.inputs) {
    if (!input->uses.empty()) read.push_back(input);
  }
  if (!outputs.empty()) {
    graph.outputs = NamedValues(graph, outputs);
  } else if (artifacts.forward.labels.empty()) {
    graph.outputs = {OnlyScores(graph, artifacts.checkpoint)};
  }
  InferenceMode(graph);
  RemoveDeadCode(graph);
  for (Value* label : read) {
    if (!label->uses.empty()) continue;
    std::erase(graph.inputs, label);
    graph.RemoveValue(label);
  }
}

OrtArtifacts ReadOrtArtifacts(const std::string& folder, const Budgets& budgets,
                              const std::string& checkpoint) {
  Check(IsFolder(folder), "[", folder,
        "] expected the folder that onnxruntime.training.artifacts wrote, got "
        "no folder");
  const std::string weights =
      checkpoint.empty() ? OrtCheckpointFile(folder) : checkpoint;
  for (const std::string& file : {OrtTrainingModel(folder), weights}) {
    if (file == checkpoint) continue;  // it has errors of its own
    Check(IsRegularFile(file), "[", folder,
          "] expected the files of onnxruntime.training.artifacts, got none "
          "named ",
          fs::path(file).filename().string());
  }
  OrtArtifacts artifacts;
  artifacts.checkpoint = ReadOrtCheckpoint(weights);
  TensorMap parameters;
  for (const NamedTensors* tensors :
       {&artifacts.checkpoint.trained, &artifacts.checkpoint.frozen}) {
    parameters.insert(tensors->begin(), tensors->end());
  }
  artifacts.forward =
      ReadOrtForward(OrtTrainingModel(folder), parameters, budgets);
  RemoveDeadCode(*artifacts.forward.graph);
  std::string optimizer = OrtOptimizerModel(folder);
  if (PathExists(optimizer)) {
    artifacts.optimizer = ReadOptimizer(optimizer);
  }
  return artifacts;
}

OrtRewriteReport RewriteOrtArtifacts(const std::string& folder,
                                     const std::string& out,
                                     const Fp8Spec& spec,
                                     const Budgets& budgets) {
  std::error_code none;
  Check(!fs::exists(fs::symlink_status(out, none)), "[", out,
        "] expected a new folder, got one that exists");
  OrtArtifacts artifacts = ReadOrtArtifacts(folder, budgets);
  OrtCheckpoint& checkpoint = artifacts.checkpoint;
  OrtRewriteOptions options{spec, {}, {}, budgets};
  for (const auto& [name, t] : checkpoint.trained) options.trained.insert(name);
  for (const auto& [name, t] : checkpoint.frozen) options.frozen.insert(name);
  const std::string made = TemporaryName(out);
  MakeNewDirectory(made);
  try {
    OrtRewriteReport report = RewriteOrtTraining(
        OrtTrainingModel(folder), OrtTrainingModel(made), options);
    if (fs::exists(OrtEvalModel(folder), none)) {
      RewriteOrtEval(OrtEvalModel(folder), OrtEvalModel(made), options, report);
    }
    if (artifacts.optimizer) {
      MappedFile optimizer = MapFile(OrtOptimizerModel(folder));
      WriteFileAtomically(
          OrtOptimizerModel(made),
          {reinterpret_cast<const char*>(optimizer.data), optimizer.size});
    }
    if (report.scales.defined()) {
      checkpoint.frozen.emplace_back(kOrtScales, report.scales);
    }
    checkpoint.strings["onnx_fp8.recipe"] = RecipeText(spec.recipe);
    checkpoint.strings["onnx_fp8.version"] = ONNX_FP8_VERSION;
    WriteOrtCheckpoint(checkpoint, OrtCheckpointFile(made));
    RenamePath(made, out);
    return report;
  } catch (...) {
    RemoveTree(made);
    throw;
  }
}

}  // namespace onnx_fp8
