// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/printable.h"
#include "cli/budget_flags.h"
#include "cli/commands/commands.h"
#include "cli/json_line.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/report/progress.h"
#include "cli/report/text.h"
#include "graph/rewrite/rewrite_model.h"
#include "training/artifacts/ort_artifacts.h"
#include "training/step/step_file.h"

namespace onnx_fp8 {
namespace {

using Json = nlohmann::ordered_json;

struct RewriteFlags {
  std::string model, out, ort_training, dump_passes;
  std::vector<std::string> shape, value;
  LossFlags loss;
  ParameterFlags parameters;
  RecipeFlags recipe;
  OptimizerFlags optimizer;
  int64_t grad_accum = 1;
  bool external_data = false;
  bool json = false;
  BudgetFlags budgets;
  MachineFlags machine;

  void AddTo(Flags& flags, bool omits_model) {
    flags.Positional("MODEL", &model, "the .onnx file", !omits_model);
    flags.Group("Forward model");
    flags.File("-o,--out", &out, "the .onnx file to write");
    recipe.AddTo(flags);
    parameters.AddTo(flags);
    flags.Group("Whole training step");
    loss.AddTo(flags);
    flags.List("--shape", &shape, "AXIS=N: sizes of all dynamic axes");
    AddValueFlag(flags, &value);
    optimizer.AddTo(flags);
    flags.Int("--grad-accum", &grad_accum, 1,
              "batches per step; above 1 the update is a second file, "
              "OUT.apply.onnx");
    flags.Group("Artifacts");
    flags.File("--ort-training", &ort_training,
               "instead of MODEL: a folder of onnxruntime.training.artifacts; "
               "--out is the folder of the new ones");
    flags.Group("Options");
    AddExternalData(flags, &external_data);
    flags.Switch("--json", &json, "print one JSON object");
    AddDumpPasses(flags, &dump_passes);
    budgets.AddTo(flags);
    machine.AddTo(flags);
    flags.Example(
        "onnx-fp8 rewrite model.onnx -o fp8.onnx --recipe tensorwise");
    flags.Example(
        "onnx-fp8 rewrite model.onnx -o step.onnx --recipe delayed --loss "
        "cross_entropy --optimizer adamw --lr 0.001 --shape batch=8,seq=64");
  }
};

void RequireStepFlags(const Flags& flags) {
  const char* needs_loss[] = {"--shape",
                              "--value",
                              "--optimizer",
                              "--lr",
                              "--weight-decay",
                              "--betas",
                              "--eps",
                              "--momentum",
                              "--nesterov",
                              "--label",
                              "--logits",
                              "--class-axis",
                              "--class-weights",
                              "--ignore-index",
                              "--label-smoothing",
                              "--delta",
                              "--group",
                              "--clip-norm",
                              "--grad-accum",
                              "--batch-norm",
                              "--tie",
                              "--no-tie",
                              "--loss-scale",
                              "--loss-scale-interval"};
  for (const char* name : needs_loss) {
    if (flags.Given(name)) {
      throw UsageError(std::string(name) +
                       " belongs to a whole training step: it needs --loss");
    }
  }
}

// As in the report of `inspect`.
Json DecisionsJson(const std::vector<GemmDecision>& decisions) {
  Json rows = Json::array();
  for (const GemmDecision& d : decisions) {
    rows.push_back({{"node", d.node},
                    {"module", d.module},
                    {"fqn", d.fqn},
                    {"role", Name(d.gemm.role)},
                    {"fp8", d.fp8},
                    {"reason", d.reason}});
  }
  return rows;
}

void PrintDecisions(const std::vector<GemmDecision>& decisions) {
  Table table({"parameter or module", "decision", "reason"});
  for (const GemmDecision& d : decisions) {
    table.Row({!d.fqn.empty()      ? d.fqn
               : !d.module.empty() ? d.module
                                   : d.node,
               d.fp8 ? "FP8" : "unchanged", d.reason});
  }
  if (!table.empty()) table.Print(Out(), 0);
}

void WriteForward(const RewriteFlags& values) {
  Progress progress;
  PassRunner runner({.dump = values.dump_passes});
  RewriteReport report =
      RewriteModel(values.model, values.out,
                   {.spec = values.recipe.MakeSpec(),
                    .dtype = values.recipe.MakeDType(),
                    .patterns = {.train = values.parameters.train,
                                 .freeze = values.parameters.freeze},
                    .observer = ShowCopies(progress),
                    .write = {values.external_data},
                    .budgets = values.budgets.Make(),
                    .runner = &runner});
  progress.Close();
  if (values.json) {
    Out() << JsonLine(Json{{"out", values.out},
                           {"gemms", DecisionsJson(report.decisions)},
                           {"opset_before", report.opset_before},
                           {"opset_after", report.opset_after}});
    return;
  }
  PrintDecisions(report.decisions);
  Out() << Printable(values.out) << ": " << report.rewritten << " of "
        << report.decisions.size() << " matrix products in FP8, opset "
        << report.opset_after;
  if (report.opset_after != report.opset_before) {
    Out() << " (was " << report.opset_before << ")";
  }
  Out() << "\n";
}

void WriteStep(const Flags& flags, const RewriteFlags& values) {
  std::error_code none;
  Check(!std::filesystem::equivalent(values.model, values.out, none), "[",
        values.out, "] expected another file than the model itself");
  SessionOptions options;
  options.model = values.model;
  options.loss = values.loss.Make();
  options.optimizer = values.optimizer.Make(flags);
  values.recipe.Fill(&options);
  options.dump_passes = values.dump_passes;
  options.grad_accum = values.grad_accum;
  values.parameters.Fill(&options);
  options.budgets = values.budgets.Make();
  StepFile file(options);
  std::vector<InputInfo> inputs = file.Inputs();
  auto shapes = ResolveShapes(inputs, ParseShapeFlag(values.shape));
  for (const InputInfo& input : inputs) {
    const Shape& shape = shapes.at(input.name);
    for (size_t i = 0; i < shape.size(); ++i) {
      if (shape[i] >= 0) continue;
      throw UsageError(
          "--shape: a whole training step needs the size of the "
          "axis \"" +
          AxisName(input, i) + "\" of the input " + input.name);
    }
  }
  InputValues known = ResolveValues(inputs, ParseValueFlag(values.value));
  file.Write(shapes, known, values.out, {values.external_data});
  Notes(file.notes());
  if (values.json) {
    Out() << JsonLine(Json{{"out", values.out}});
    return;
  }
  Out() << Printable(values.out) << ": the whole training step\n";
}

void WriteArtifacts(const Flags& flags, const RewriteFlags& values) {
  for (const char* name : {"MODEL", "--loss", "--train", "--freeze", "--dtype",
                           "--external-data", "--dump-passes"}) {
    if (flags.Given(name)) {
      throw UsageError(std::string(name) + " is not for --ort-training");
    }
  }
  OrtRewriteReport report =
      RewriteOrtArtifacts(values.ort_training, values.out,
                          values.recipe.MakeSpec(), values.budgets.Make());
  if (values.json) {
    Out() << JsonLine(
        Json{{"out", values.out}, {"gemms", DecisionsJson(report.decisions)}});
    return;
  }
  PrintDecisions(report.decisions);
  std::map<GemmRole, int64_t> all;
  int64_t rewritten = 0;
  for (const GemmDecision& d : report.decisions) {
    ++all[d.gemm.role];
    rewritten += d.fp8;
  }
  Out() << Printable(values.out) << ": " << rewritten << " of "
        << report.decisions.size() << " matrix products in FP8; "
        << all[GemmRole::kForward] << " forward, " << all[GemmRole::kDgrad]
        << " dgrad, " << all[GemmRole::kWgrad] << " wgrad, "
        << all[GemmRole::kNone] << " without a weight\n";
}

}  // namespace

int Rewrite(const Arguments& arguments) {
  Flags flags("rewrite",
              "Write the model with its linear layers in FP8, for any ONNX "
              "runtime; with --loss its whole training step.");
  RewriteFlags values;
  bool artifacts = std::ranges::any_of(arguments, [](const auto& word) {
    return word.starts_with("--ort-training");
  });
  values.AddTo(flags, artifacts);
  if (!flags.Parse(arguments)) return 0;
  flags.Require({"--out"});
  values.machine.Apply();
  if (artifacts) {
    RequireStepFlags(flags);
    WriteArtifacts(flags, values);
    return 0;
  }
  flags.Require({"MODEL"});
  if (std::filesystem::path(values.out).extension() != ".onnx") {
    throw UsageError("--out: expected a name that ends in .onnx, got " +
                     values.out);
  }
  if (flags.Given("--loss")) {
    WriteStep(flags, values);
  } else {
    RequireStepFlags(flags);
    WriteForward(values);
  }
  return 0;
}

}  // namespace onnx_fp8
